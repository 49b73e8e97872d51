"""What can go wrong, as a tree. The command line turns each branch into an exit code.

    UnstarveError               exit 2
    ├── UsageError              the caller asked for something that makes no sense
    │   ├── OutputError         a file that the user named cannot be written
    │   └── UploadTooLargeError a file is larger than the server takes
    ├── RunFileError            a run file cannot be used
    │   ├── NotARunError        not written by unstarve
    │   ├── NewerFormatError    written by a newer unstarve
    │   ├── NoSuchRunError      no run of this name is listed
    │   ├── RunExistsError      the name is taken, by a finished run or one being recorded
    │   ├── NoRoomError         the disk has no room for it
    │   └── JobError            the server could not analyse it: its process ended
    │       ├── JobTimeoutError it took too long
    │       └── JobMemoryError  it took too much memory
    ├── LogError                a loader log cannot be read
    ├── SettingsFileError       a file of loader settings cannot be used
    ├── CacheError              a dataset cannot be cached
    │   └── CacheTooLargeError  it takes more than may be used
    ├── DataFileError           a file of a dataset is truncated, damaged or not what it was
    │   └── ImageError          an image cannot be decoded; whoever knows its file adds the name
    ├── NotPatchableError       the source cannot be changed as asked
    ├── NotPredictableError     what a run would be like otherwise cannot be told from it
    ├── MissingExtraError       an optional package is needed
    ├── ServerBusyError         the server has too much to do already
    ├── StoppedError            exit 130: from the keyboard; what was done is kept
    └── CommandNotFoundError    exit 3: the user's command could not be started

Messages say what was wrong, where, and what to do, in one sentence.
"""

from __future__ import annotations


class UnstarveError(Exception):
    """Base of everything unstarve raises on purpose."""

    exit_code = 2


class UsageError(UnstarveError, ValueError):
    """The caller asked for something that makes no sense."""


class OutputError(UsageError, OSError):
    """A file that the user named cannot be written; what was there is as it was."""


class UploadTooLargeError(UsageError):
    """A file is larger than the server takes."""


class RunFileError(UnstarveError):
    """A run file cannot be used."""


class NotARunError(RunFileError):
    """Not written by unstarve, or damaged from the first byte."""


class NewerFormatError(RunFileError):
    """Written by a newer unstarve than this one."""


class NoSuchRunError(RunFileError):
    """No run of this name is listed; it may have been deleted or renamed."""


class RunExistsError(RunFileError):
    """The name given for a new run is taken."""


class NoRoomError(RunFileError):
    """The disk has no room for a run file."""


class JobError(RunFileError):
    """The process that analysed a run for the server ended before it was done."""


class JobTimeoutError(JobError):
    """Analysing a run for the server took longer than it may."""


class JobMemoryError(JobError):
    """Analysing a run for the server took more memory than it may."""


class LogError(UnstarveError):
    """A loader log cannot be read."""


class SettingsFileError(UnstarveError):
    """A file of loader settings (``--with``, ``--save``) cannot be read or means nothing."""


class CacheError(UnstarveError):
    """A dataset, or one of its samples, cannot be cached."""


class CacheTooLargeError(CacheError):
    """A dataset takes more memory or disk than may be used."""


class DataFileError(UnstarveError, ValueError):
    """A file of a dataset is truncated, damaged, or has changed since it was looked at."""


class ImageError(DataFileError):
    """An image is truncated, damaged, too large or of no known kind; the message does not name the file."""


class NotPredictableError(UnstarveError):
    """What a run would be like otherwise cannot be told from it."""


class NotPatchableError(UnstarveError):
    """The user's source cannot be changed as asked; the message says precisely why."""


class MissingExtraError(UnstarveError, ImportError):
    """An optional package is needed for what was asked."""


class ServerBusyError(UnstarveError):
    """The server has too much to do already."""


class StoppedError(UnstarveError):
    """Work was stopped from the keyboard; the message says what is kept and how to go on."""

    exit_code = 130


class CommandNotFoundError(UnstarveError):
    """The user's command could not be started."""

    exit_code = 3
