"""Talk to the model that plans for the robots: words come at the speed of speech.

Start `timely-llm serve` in one terminal and this file in another:

    python examples/talk.py
"""

import sys

from timely_llm.ros.client import PlanClientError, TalkClient

QUESTIONS = ("Tell me a story about a robot.", "And then?")


def main() -> None:
    """Ask twice in one conversation: the second time only the new words are computed."""
    with TalkClient("ann") as client:
        for turn, question in enumerate(QUESTIONS):
            print(f"> {question}")
            answer = client.converse(question, "voice", conversation="story", turn=turn)
            for text in answer.chunks():
                print(text, end="", flush=True)
            result = answer.result()
            kept, prompt = result.kept_tokens, result.prompt_tokens
            print(f"\n({kept} of {prompt} prompt tokens were kept, SLO met: {result.slo_met})")


if __name__ == "__main__":
    try:
        main()
    except PlanClientError as error:  # no server, no answer
        sys.exit(f"talk: {error}")
