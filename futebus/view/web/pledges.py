"""How a page knows the server again that it has shown the token.

The one rule: who was shown the token gives a question, and its answer, that nobody else has. A page that has not listened for a
while asks it before it shows the token once more: whoever has the port by then does not know the answer.
"""

import hashlib
import hmac
import secrets

ASKED_BYTES = 16
"""Random ones in a question: nobody guesses which one a page has."""

SHOWN = "shown"
"""Where in the state of a request stands whether it shows the token."""


class Pledges:
    """Questions and answers of one server. Another one has others, though the token be the same."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def one(self) -> dict[str, str]:
        """A question that was never asked, and its answer. For who has shown the token."""
        asked = secrets.token_urlsafe(ASKED_BYTES)
        return {"ask": asked, "answer": self.answer(asked)}

    def answer(self, asked: str) -> str:
        """The answer to whatever is asked, for everybody: it tells who has given the question, and nothing else."""
        return hmac.new(self._secret, asked.encode(errors="replace"), hashlib.sha256).hexdigest()
