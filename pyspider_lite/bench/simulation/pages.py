"""The site of a simulation: numbered pages in some projects, each with ten links of which nine are known, and probes, which show how soon
something new is given out. Used by `crowd`."""

import random
import re
from collections.abc import Mapping

from pyspider_lite.bench.roles.scheduler import new_task
from pyspider_lite.models.page import Dispatch
from pyspider_lite.models.task import NewTask

#: links of a page; all but one are known, as long as there are pages that are not
LINKS = 10
#: of a probe: it is given out before all pages
_URGENT = 9


class Pages:
    """``total`` pages, evenly over the projects, of which ``seed`` are known at the beginning. ``generations`` names the projects."""

    def __init__(self, total: int, seed: int, generations: Mapping[str, str]) -> None:
        self._generations = generations
        self._total = {name: total // len(generations) for name in generations}
        self._total[next(iter(generations))] += total % len(generations)
        self._seed = {name: min(count, max(1, seed // len(generations))) for name, count in self._total.items()}
        self._chance = random.Random(1)
        self.probes = 0

    @property
    def expected(self) -> int:
        """Pages and probes that have to be stored in the end."""
        return sum(self._total.values()) + self.probes

    def seed(self) -> list[NewTask]:
        """What is known at the beginning."""
        return [self._task(name, index) for name, count in self._seed.items() for index in range(count)]

    def follows(self, task: Dispatch) -> list[NewTask]:
        """What is on this page: always the same unknown one, and others that were met before."""
        number = int(re.findall(r"(-?\d+)\.html$", task.url)[0])
        if number < 0:
            return []
        name = task.project
        further = number + self._seed[name]
        found = [self._task(name, further)] if further < self._total[name] else []
        return found + [self._task(name, self._chance.randrange(number + 1)) for _ in range(LINKS - len(found))]

    def probe(self) -> NewTask:
        """One more task that nobody knows, in the projects by turns, to be given out at once."""
        name = list(self._generations)[self.probes % len(self._generations)]
        self.probes += 1
        page = self._task(name, -self.probes)
        return NewTask(
            page.taskid,
            name,
            page.url,
            schedule={"priority": _URGENT},
            process=page.process,
            generation=page.generation,
        )

    def _task(self, project: str, index: int) -> NewTask:
        return new_task(index, self._generations[project], project)
