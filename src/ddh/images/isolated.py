"""Pictures of strangers, decoded in a process of its own that a deadline can end.

`python -m ddh.images.isolated` is that process. It reads files from standard input and answers on
standard output, each with its length first: pixels or a thumbnail, or, with a negative length, a
reason.
"""

import json
import struct
import subprocess
import sys
import threading
from dataclasses import asdict

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ddh._core.errors import InputError
from ddh.images.decoding import Limits, UnreadableImage, decode
from ddh.images.preprocessing import Preprocessing
from ddh.images.thumbnail import thumbnail_jpeg

LENGTH = struct.Struct(">q")


SIZE = struct.Struct(">hh")  # of a thumbnail: its side and its quality, before the file


class IsolatedProcess:
    """Answers for pictures in a process that the first one starts. For one thread.

    A picture that takes longer than `seconds`, or brings its process down, is unreadable; the next
    one gets a new process.
    """

    def __init__(self, preprocessing: Preprocessing | None, limits: Limits, seconds: float) -> None:
        described = None if preprocessing is None else preprocessing.to_dict()
        self._arguments = json.dumps([described, asdict(limits)])
        self._seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None

    def _ask(self, content: bytes, name: str) -> bytes:
        if self._process is None or self._process.poll() is not None:
            self._process = self._start()
        process = self._process
        timer = threading.Timer(self._seconds, self.close)
        timer.start()
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(LENGTH.pack(len(content)))
            process.stdin.write(content)
            process.stdin.flush()
            (length,) = LENGTH.unpack(process.stdout.read(LENGTH.size))
            answer = process.stdout.read(abs(length))
        except (OSError, struct.error) as error:  # it has ended
            self.close()
            reason = f"cannot be decoded: it took over {self._seconds:g} s, or is damaged"
            raise UnreadableImage(name, reason) from error
        finally:
            timer.cancel()
            timer.join()
        if length < 0:
            raise UnreadableImage(name, answer.decode())
        return answer

    def _start(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "ddh.images.isolated", self._arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the service alone
        )
        assert process.stdout is not None
        process.stdout.read(1)  # it is ready; the deadline is for the picture
        return process

    def close(self) -> None:
        """End the process; the picture that it decodes is unreadable."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()


class IsolatedDecoder(IsolatedProcess):
    """Decodes and preprocesses pictures."""

    def __init__(self, preprocessing: Preprocessing, limits: Limits, seconds: float) -> None:
        super().__init__(preprocessing, limits, seconds)
        self._shape = (preprocessing.size, preprocessing.size, 3)

    def decode(self, content: bytes, name: str) -> NDArray[np.uint8]:
        """The network's input for an image file; raises `UnreadableImage`."""
        return np.frombuffer(self._ask(content, name), np.uint8).reshape(self._shape)


class IsolatedThumbnails(IsolatedProcess):
    """Makes small JPEG files of pictures."""

    def __init__(self, limits: Limits, seconds: float) -> None:
        super().__init__(None, limits, seconds)

    def jpeg(self, content: bytes, name: str, side: int, quality: int) -> bytes:
        """As `ddh.images.thumbnail.thumbnail_jpeg`; raises `UnreadableImage`."""
        return self._ask(SIZE.pack(side, quality) + content, name)


def main() -> None:
    """Answer until standard input ends."""
    described, bounds = json.loads(sys.argv[1])
    preprocessing = None if described is None else Preprocessing.from_dict(described)
    limits = Limits(**bounds)
    # Pillow refuses twice as many by itself, also for the picture inside an icon.
    Image.MAX_IMAGE_PIXELS = int(limits.megapixels * 1e6 / 2)
    files, answers = sys.stdin.buffer, sys.stdout.buffer
    answers.write(b"\n")
    answers.flush()
    while header := files.read(LENGTH.size):
        content = files.read(*LENGTH.unpack(header))
        try:
            answer, sign = _answer(content, preprocessing, limits), 1
        except InputError as error:
            reason = error.reason if isinstance(error, UnreadableImage) else str(error)
            answer, sign = reason.encode(), -1
        answers.write(LENGTH.pack(sign * len(answer)))
        answers.write(answer)
        answers.flush()


def _answer(content: bytes, preprocessing: Preprocessing | None, limits: Limits) -> bytes:
    if preprocessing is None:
        side, quality = SIZE.unpack(content[: SIZE.size])
        return thumbnail_jpeg(content[SIZE.size :], side, quality, limits=limits)
    image = decode(content, limits=limits, at_least=preprocessing.shorter_side)
    return preprocessing.apply(image).tobytes()


if __name__ == "__main__":
    main()
