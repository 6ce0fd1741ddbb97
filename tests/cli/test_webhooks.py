"""What the webhook was given up telling of, in the terminal."""

import json
from collections.abc import Callable
from pathlib import Path

from click.testing import Result
from tests.providers.user.stage import begun, served_user
from tests.providers.user.test_failed_deliveries import asking, given_up
from tests.providers.user.test_webhook import QUESTION, listening, settings


def test_messages_that_were_given_up_are_listed_sent_again_and_dropped(
    cli: Callable[..., Result], tmp_path: Path
) -> None:
    with listening(*[410] * 4) as listener, served_user(tmp_path, [QUESTION] * 3, user=settings(listener)) as stage:
        at = ("--url", stage.server.url)
        assert cli("webhooks", "list", *at).stdout == "No message was given up.\n"
        assert json.loads(cli("webhooks", "retry", "--all", "--json", *at).stdout) == {"data": []}
        for _ in range(3):
            begun(stage)
        first, second, third = (one["id"] for one in given_up(asking(stage), 3))
        result = cli("webhooks", "list", "--limit", "2", *at)
        header, *rows = result.stdout.splitlines()
        assert header.split() == ["ID", "RESPONSE", "ASKED", "GIVEN", "UP", "RETRIES", "WHY"]
        assert [row.split()[0] for row in rows] == [third, second]
        assert "It answered with the status 410." in rows[0]
        assert result.stderr == f"There are more: --after {second}\n"
        [row] = json.loads(cli("webhooks", "list", "--after", second, "--json", *at).stdout)["data"]
        assert row["id"] == first
        result = cli("webhooks", "retry", first, *at)
        assert (result.exit_code, result.stdout) == (
            1,
            f"{first} did not get through: It answered with the status 410.\n",
        )
        assert result.stderr == "antwort: not all messages got through; they can be sent again\n"
        result = cli("webhooks", "drop", second, *at)
        assert (result.exit_code, result.stdout) == (0, f"Dropped {second}.\n")
        result = cli("webhooks", "retry", "--all", *at)
        assert (result.exit_code, result.stdout) == (0, f"{first} is delivered\n{third} is delivered\n")
        assert cli("webhooks", "list", *at).stdout == "No message was given up.\n"
        gone = cli("webhooks", "drop", first, *at)
        assert (gone.exit_code, gone.stderr) == (2, f"antwort: Failed delivery with id '{first}' not found.\n")


def test_whoever_names_nothing_or_too_much_is_told(cli: Callable[..., Result]) -> None:
    for names in ((), ("question_1", "--all")):
        result = cli("webhooks", "drop", *names, "--url", "http://127.0.0.1:1")
        assert (result.exit_code, result.stderr) == (
            2,
            "antwort: name messages by their ids, or all by --all; 'antwort webhooks list' shows those there are\n",
        )
