"""The exceptions that unstarve raises, as a tree. The command line turns each branch into an exit code.

    UnstarveError               exit 2
    ├── UsageError              invalid arguments
    │   ├── OutputError         a file that the user named cannot be written
    │   └── UploadTooLargeError a file is larger than the server accepts
    ├── RunFileError            a run file cannot be used
    │   ├── NotARunError        not written by unstarve
    │   ├── NewerFormatError    written by a newer unstarve
    │   ├── NoSuchRunError      no run of this name is listed
    │   ├── RunExistsError      the name is taken, by a finished run or one being recorded
    │   ├── NoRoomError         the disk is full
    │   └── JobError            the server could not analyse it: the process died
    │       ├── JobTimeoutError it took too long
    │       └── JobMemoryError  it needed too much memory
    ├── ProfileError            a profiler's file cannot be imported
    ├── LogError                a loader log cannot be read
    ├── SettingsFileError       a file of loader settings cannot be used
    ├── CacheError              a dataset cannot be cached
    │   └── CacheTooLargeError  it needs more memory or disk than it may use
    ├── DataFileError           a file of a dataset is truncated, damaged or has changed
    │   └── ImageError          an image cannot be decoded; callers that know the file add its name
    ├── NotPatchableError       the source cannot be changed as asked
    ├── NotPredictableError     a run cannot be modelled, so nothing can be forecast
    ├── HangError               no batch came for `--hang-after` seconds; raised inside the training
    ├── MissingExtraError       an optional package is needed
    ├── ServerBusyError         the server is busy
    ├── StoppedError            exit 130: stopped with Ctrl-C; finished work is kept
    ├── ProcessError            a process cannot be inspected
    └── CommandNotFoundError    exit 3: the user's command could not be started

Messages say what was wrong, where, and what to do, in one sentence.
"""

from __future__ import annotations


class UnstarveError(Exception):
    """Base of all exceptions that unstarve raises on purpose."""

    exit_code = 2


class UsageError(UnstarveError, ValueError):
    """An argument or a combination of arguments is invalid."""


class OutputError(UsageError, OSError):
    """A file that the user named cannot be written; the old one is unchanged."""


class UploadTooLargeError(UsageError):
    """A file is larger than the server accepts."""


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
    """The disk is too full for a run file."""


class JobError(RunFileError):
    """The process that analysed a run for the server died."""


class JobTimeoutError(JobError):
    """Analysing a run for the server took too long."""


class JobMemoryError(JobError):
    """Analysing a run for the server needed too much memory."""


class ProfileError(UnstarveError):
    """A profiler's file cannot be imported: damaged, cut off, or of another kind."""


class LogError(UnstarveError):
    """A loader log cannot be read."""


class SettingsFileError(UnstarveError):
    """A file of loader settings (``--with``, ``--save``) cannot be read or is invalid."""


class CacheError(UnstarveError):
    """A dataset, or one of its samples, cannot be cached."""


class CacheTooLargeError(CacheError):
    """A dataset needs more memory or disk than it may use."""


class DataFileError(UnstarveError, ValueError):
    """A file of a dataset is truncated, damaged, or has changed since it was opened."""


class ImageError(DataFileError):
    """An image is truncated, damaged, too large or of unknown format; the message does not name the file."""


class NotPredictableError(UnstarveError):
    """A run cannot be modelled; the message gives the reason."""


class NotPatchableError(UnstarveError):
    """The user's source cannot be changed as asked; the message says why."""


class HangError(UnstarveError, RuntimeError):
    """No batch came for ``--hang-after`` seconds; raised in the wait with ``--on-hang=raise``."""


class MissingExtraError(UnstarveError, ImportError):
    """An optional package is needed and not installed."""


class ServerBusyError(UnstarveError):
    """The server is busy; try again later."""


class StoppedError(UnstarveError):
    """Stopped with Ctrl-C; the message says what is kept and how to continue."""

    exit_code = 130


class ProcessError(UnstarveError):
    """A process cannot be inspected: there is none of this number, or it belongs to somebody else."""


class CommandNotFoundError(UnstarveError):
    """The user's command could not be started."""

    exit_code = 3
