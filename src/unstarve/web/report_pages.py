"""Pages of reports, each kept until its run changes: one of a million steps takes seconds to read."""

from __future__ import annotations

import contextlib
from collections import OrderedDict

from unstarve.errors import UnstarveError
from unstarve.web.job_pool import JobPool
from unstarve.web.jobs import report_html
from unstarve.web.run_folder import RunEntry, Stamp

_MOST_PAGES = 64
_LARGE_BYTES = 32 << 20
"""A run file from this size on takes noticeably long to read."""


class ReportPages:
    """The last pages that were asked for. Belongs to one event loop."""

    def __init__(self, jobs: JobPool) -> None:
        self._jobs = jobs
        self._known: OrderedDict[str, tuple[Stamp, str]] = OrderedDict()

    async def page(self, entry: RunEntry) -> str:
        """The page of a run. Raises `UnstarveError` when the run cannot be shown."""
        stamp, page = self._known.get(entry.id, (None, ""))
        if stamp == entry.stamp:
            self._known.move_to_end(entry.id)
            return page
        page = await self._jobs.do(report_html, entry.path)
        if not entry.has_parts:  # files of a run that is being recorded change all the time
            self._known[entry.id] = (entry.stamp, page)
            self._known.move_to_end(entry.id)
            if len(self._known) > _MOST_PAGES:
                self._known.popitem(last=False)
        return page

    async def make_ready(self, entry: RunEntry) -> None:
        """Make the page of a large run before it is asked for."""
        if not entry.has_parts and entry.size >= _LARGE_BYTES:
            with contextlib.suppress(UnstarveError):  # whoever opens the page is told
                await self.page(entry)
