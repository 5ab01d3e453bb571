"""Short readable kernel names: `_Z11copy_kernelIdEvPKT_PS0_` is `copy_kernel`.

For slices, tables and charts, where a whole signature does not fit. Only the function's own name is read out of a
mangled one, so that names which were cut or edited behind it still read well; full demanglers refuse those. Never
raises; what cannot be read is given back as it is.
"""

from functools import lru_cache
from typing import Final

from cascade_accelsim.itanium import function_path
from cascade_accelsim.text import clean

MAX_READABLE_CHARS: Final = 120
_MAX_READ_CHARS: Final = 8192
"""Real mangled names of template libraries reach 5,000 characters."""
_NAMES_REMEMBERED: Final = 4096

_SAY_LITTLE: Final = frozenset(
    {
        "Kernel",
        "Kernel2",
        "kernel",
        "kernel_",
        "device_kernel",
        "global_kernel",
        "operator()",
        "lambda",
        "run",
        "invoke",
    }
)
"""Names that many kernels share: the enclosing namespace or class goes before them."""


def readable_name(kernel_name: str) -> str:
    """The function's name without return type, namespaces, template arguments and parameters.

    A name that says little keeps what encloses it (`cutlass::Kernel`). Several mangled names, as concurrent kernels
    print them, are joined by commas. The empty text stays empty.
    """
    return _readable(kernel_name[:_MAX_READ_CHARS])


@lru_cache(maxsize=_NAMES_REMEMBERED)
def _readable(kernel_name: str) -> str:
    name = clean(kernel_name)
    words = name.split(" ")
    if all(word.startswith("_Z") for word in words):
        name = ", ".join(_joined(function_path(word)) or word for word in words)
    elif any(sign in name for sign in ("(", "<", "::")):
        name = _joined(_path_of_demangled(name)) or name
    return name if len(name) <= MAX_READABLE_CHARS else f"{name[: MAX_READABLE_CHARS - 1]}…"


def _joined(path: list[str]) -> str:
    """The last of the names, after the one that encloses it where it says little by itself."""
    named = [part for part in path if not part.startswith("_GLOBAL__N_")]
    if named[-2:] == ["lambda", "operator()"]:
        named.pop()
    return "::".join(named[-2:] if named and named[-1] in _SAY_LITTLE else named[-1:])


def _path_of_demangled(name: str) -> list[str]:
    """`["cutlass", "Kernel"]` of `void cutlass::Kernel<Shape<8, 8> >(T1::Params) [clone .constprop.0]`."""
    name = name.replace("(anonymous namespace)::", "").replace("operator()", "operator\x00\x01")
    flat: list[str] = []
    depth = 0
    for character in name:
        if character in "(<[{":
            if depth == 0 and character == "(" and flat:
                break
            depth += 1
        elif character in ")>]}":
            depth = max(0, depth - 1)
        elif depth == 0:
            flat.append(character)
    signature = "".join(flat).replace("\x00\x01", "()").strip()
    return [part for part in signature.rpartition(" ")[2].split("::") if part]
