"""The curves of the page."""

from ..view.web.webs import Web
from .browsers import Page


def test_a_curve_has_each_look_once(page: Page, served: Web) -> None:
    """Of a slow bus the same look is told each second; and the first that is told has been the last of the past already."""
    page.go(served.url)
    lengths = page.driver.execute_async_script(
        """
        const done = arguments[0];
        import("/curves.js").then(({ Curve }) => {
          const curve = new Curve(document.createElement("figure"));
          const lengths = [];
          const add = (moment) => { curve.add([1, 1, 1, 1, 0], moment); lengths.push(curve.past.length); };
          curve.begin([[2, 2, 2, 2, 0]], 7.5);
          [7.5, 8.5, 8.5, 9.5, 0.5].forEach(add);
          done(lengths);
        });
        """
    )
    assert lengths == [1, 2, 2, 3, 4], "after 9.5 there was another bus"
