"""Labs: exercises that check themselves.

lab.py              the nouns: a lab, its faults, its questions
all_labs.py         the list of labs
started.py          a lab in the learner's folder: what was drawn, what was committed
judge.py            decides whether the learner got there
turns.py            runs two versions in turns until it is clear which goal is reached
harness_process.py  runs harnesses in forks of harness_server.py, and reads what they measured
harness.py          a harness: trains with a loader, and digests what it delivers
versions.py         a harness: runs a version, and compares its results with the original's
original.py         the version that came with a lab, for questions that have to be measured
drawn.py            how much work each part of an exercise does: much in the part that was drawn
workload.py         what the datasets of labs do: the faults, as real work
leaks.py            what the training of the memory lab holds on to; memory_harness.py measures it
traced.py           the training of the trace lab
nsys_recording.py   an nsys export of a training with a bottleneck that the seed draws
parts_*.py          the lab on faster parts: its draw, its data, its harness, its judge, direct reads
ranks.py            the data of the lab of many ranks; rank_harness.py iterates it on two ranks
breakage.py         what the trainings of the lab "When it breaks" read; break_harness.py runs one of them
specs/              one module a lab: its faults, hints and questions
material/           what the learner gets, one folder a lab
"""
