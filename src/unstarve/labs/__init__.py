"""Labs: exercises that check themselves.

lab.py         the nouns: a lab, its faults, its questions
all_labs.py    the list of labs
started.py     a lab in the learner's folder: what was drawn, what was committed
workload.py    what the datasets of labs do: the faults, as real work
harness.py     trains with a loader of the learner's and digests what it delivers; a process of its own
harness_process.py  runs a harness
ranks.py       the data of the lab of many ranks, and what its samplers do wrong
rank_harness.py  iterates the learner's loader on two ranks and says which samples arrived
breakage.py    what the trainings of the lab "When it breaks" read from, and their limits
break_harness.py  runs one of them and says how it went
judge.py       decides whether the learner got there
specs/         one module a lab: its faults, hints and questions
material/      what the learner gets, one folder a lab
"""
