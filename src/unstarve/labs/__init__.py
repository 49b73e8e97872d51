"""Labs: exercises that check themselves.

lab.py              the nouns: a lab, its faults, its questions
all_labs.py         the list of labs
started.py          a lab in the learner's folder: what was drawn, what was committed
workload.py         what the datasets of labs do: the faults, as real work
leaks.py            what the training of the memory lab holds on to
traced.py           the training of the trace lab
harness.py          trains with a loader of the learner's and digests what it delivers; a process of its own
memory_harness.py   trains with the learner's version of the memory lab and says what it keeps; likewise
harness_process.py  starts a harness and reads its result
judge.py            decides whether the learner got there
specs/              one module a lab: its faults, hints and questions
material/           what the learner gets, one folder a lab
"""
