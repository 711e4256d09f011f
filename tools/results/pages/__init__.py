"""The pages of results, by what they are about, in the order of docs/results.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tools.results.page import Page, ResultsError
from tools.results.pages import both, people, plans, policies, servers, sketches, stages, whole

LANES: Mapping[str, Sequence[Page]] = {
    "Robots": plans.PAGES,
    "People": people.PAGES,
    "Robots and people at one engine": both.PAGES,
    "Several servers": servers.PAGES,
    "A model in stages": stages.PAGES,
    "Sketches of a cloud": sketches.PAGES,
    "The policies themselves": policies.PAGES,
    "Whole requests in a predicted order": whole.PAGES,
}

PAGES = tuple(page for pages in LANES.values() for page in pages)


def chosen(names: Sequence[str], pages: Sequence[Page] = PAGES) -> list[Page]:
    """Return the pages of some names, or all pages without names.

    Raises:
        ResultsError: no page has the name.
    """
    known = {page.name: page for page in pages}
    for name in names:
        if name not in known:
            raise ResultsError(f"there is no page {name!r}: choose of {', '.join(known)}")
    return [known[name] for name in names] or list(pages)
