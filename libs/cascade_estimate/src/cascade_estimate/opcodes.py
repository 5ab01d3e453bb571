"""SASS opcodes: the unit that executes each and how it touches memory.

The classes are those by which Accel-Sim's trace front end sorts the opcodes of Volta to Hopper: integer,
moves, conversions and shuffles run on INT, single and half precision on SP, branches, textures, tensor and
uniform instructions on the specialised units 1 to 4. Hopper's warp-group and TMA instructions are integer
operations there. An opcode that is not listed counts as the slowest class, and the estimate says so.
"""

from __future__ import annotations

from enum import IntEnum


class Unit(IntEnum):
    """Execution units of one sub-core (MEM is one for the whole core)."""

    INT = 0
    SP = 1
    SFU = 2
    DP = 3
    BRANCH = 4
    TEXTURE = 5
    TENSOR = 6
    UNIFORM = 7
    MEM = 8


class Kind(IntEnum):
    """What the core does with an instruction beside executing it."""

    ALU = 0
    HALF = 1  # packed half precision: twice the rate of SP
    BARRIER = 3
    EXIT = 4
    MEMBAR = 5
    SHARED = 6
    SHARED_ATOMIC = 7
    LOAD = 8
    STORE = 9
    ATOMIC = 10
    ASYNC_COPY = 11  # LDGSTS: global to shared without a register
    COPY_GROUP = 12  # LDGDEPBAR: closes a group of async copies
    COPY_WAIT = 13  # DEPBAR: waits for groups
    LOCAL_LOAD = 14
    LOCAL_STORE = 15
    L2_LOAD = 16  # a load of GPU scope, which passes the L1 by
    GENERIC_LOAD = 17  # LD, ST: the space follows from the address
    GENERIC_STORE = 18


def _table() -> dict[str, tuple[Unit, Kind]]:
    groups: list[tuple[Unit, Kind, str]] = [
        (
            Unit.SP,
            Kind.ALU,
            "FADD FADD32I FCHK FFMA FFMA32I FMNMX FMUL FMUL32I FSEL FSET FSETP FSWZADD HMUL2 HMNMX2",
        ),
        (Unit.SP, Kind.HALF, "HADD2 HADD2_32I HFMA2 HFMA2_32I HMUL2_32I HSET2 HSETP2"),
        (Unit.SFU, Kind.ALU, "MUFU"),
        (Unit.DP, Kind.ALU, "DADD DFMA DMUL DSETP DMNMX DSET"),
        (Unit.TENSOR, Kind.ALU, "HMMA DMMA BMMA IMMA"),
        (
            Unit.INT,
            Kind.ALU,
            (
                "BMSK BREV FLO IABS IADD IADD3 IADD32I IDP IDP4A IMAD IMNMX IMUL IMUL32I ISCADD ISCADD32I ISETP LEA "
                "LOP LOP3 LOP32I POPC SHF SHL SHR VABSDIFF VABSDIFF4 VIADD VIADDMNMX VIMNMX VHMNMX ISET ICMP XMAD BFE "
                "BFI F2F F2FP F2I I2F I2I I2IP I2FP F2IP FRND MOV MOV32I MOVM PRMT SEL SGXT SHFL PLOP3 PSETP P2R R2P "
                "LDC MATCH QSPC CCTL CCTLL ERRBAR CCTLT SUATOM SULD SUQUERY SURED SUST B2R CS2R CSMTEST GETLMEMBASE "
                "LEPC NOP PMTRIG R2B S2R SETCTAID SETLMEMBASE VOTE VOTE_VTG ELECT FENCE SYNCS UCGABAR_ARV "
                "UCGABAR_WAIT UTMALDG UTMASTG UTMACCTL UTMACMDFLUSH UTMAPF UBLKCP UBLKPF UBLKRED UTMAREDG ACQBULK "
                "PREEXIT LDGMC STAS REDAS HGMMA QGMMA IGMMA BGMMA WARPGROUP CGAERRBAR VIMNMX3"
            ),
        ),
        (
            Unit.UNIFORM,
            Kind.ALU,
            (
                "R2UR REDUX S2UR UBMSK UBREV UCLEA UF2FP UFLO UIADD3 UIMAD UISETP ULDC ULEA ULOP ULOP3 ULOP32I UMOV "
                "UP2UR UPLOP3 UPOPC UPRMT UPSETP UR2UP USEL USGXT USHF USHL USHR VOTEU CREDUX USETMAXREG"
            ),
        ),
        (Unit.TEXTURE, Kind.ALU, "TEX TLD TLD4 TMML TXD TXQ"),
        (
            Unit.BRANCH,
            Kind.ALU,
            (
                "BMOV BPT BRA BREAK BRX BRXU BSSY BSYNC CALL JMP JMX JMXU KILL NANOSLEEP RET RPCMOV RTT WARPSYNC YIELD "
                "PBK BRK SSY SYNC PRET CONT PCNT JCAL"
            ),
        ),
        (Unit.INT, Kind.COPY_GROUP, "LDGDEPBAR ARRIVES"),
        (Unit.INT, Kind.COPY_WAIT, "DEPBAR"),
        (Unit.INT, Kind.BARRIER, "BAR"),
        (Unit.INT, Kind.EXIT, "EXIT"),
        (Unit.MEM, Kind.MEMBAR, "MEMBAR"),
        (Unit.MEM, Kind.SHARED, "LDS LDSM STS STSM"),
        (Unit.MEM, Kind.SHARED_ATOMIC, "ATOMS"),
        (Unit.MEM, Kind.LOAD, "LDG"),
        (Unit.MEM, Kind.STORE, "STG"),
        (Unit.MEM, Kind.ATOMIC, "ATOM ATOMG RED REDG"),
        (Unit.MEM, Kind.ASYNC_COPY, "LDGSTS"),
        (Unit.MEM, Kind.LOCAL_LOAD, "LDL"),
        (Unit.MEM, Kind.LOCAL_STORE, "STL"),
        (Unit.MEM, Kind.GENERIC_LOAD, "LD"),
        (Unit.MEM, Kind.GENERIC_STORE, "ST"),
    ]
    return {name: (unit, kind) for unit, kind, names in groups for name in names.split()}


_OPCODES = _table()

BY_UNIT_ONLY = frozenset(
    {
        "BGMMA",
        "HGMMA",
        "IGMMA",
        "QGMMA",
        "SYNCS",
        "UBLKCP",
        "UBLKPF",
        "UBLKRED",
        "UCGABAR_ARV",
        "UCGABAR_WAIT",
        "UTMACCTL",
        "UTMACMDFLUSH",
        "UTMALDG",
        "UTMAPF",
        "UTMAREDG",
        "UTMASTG",
        "WARPGROUP",
    }
)
"""Hopper's asynchronous instructions: they take their unit's time, but neither their traffic nor their waits count."""

UNKNOWN = (Unit.SFU, Kind.ALU)
"""Class of an opcode that is not listed: the special-function unit, the slowest that all architectures
share."""


GLOBAL_KINDS = frozenset((Kind.LOAD, Kind.STORE, Kind.ATOMIC, Kind.ASYNC_COPY, Kind.L2_LOAD))
"""Accesses to lines that other warps and blocks may touch too."""

LOCAL_KINDS = frozenset((Kind.LOCAL_LOAD, Kind.LOCAL_STORE))
"""Accesses to a thread's own memory."""

_WORD_BYTES = 4  # a lane of an access whose opcode names no width
_MOST_BYTES = 32  # a lane of any access
_BITS = 8


def classify(opcode: str) -> tuple[Unit, Kind, bool]:
    """Unit, kind, and whether the opcode is known, for `opcode` with its modifiers (`LDG.E.128`).

    On Volta, whose table knows no IMMA, the difference does not occur in practice, so one table serves all.
    """
    name, *modifiers = opcode.split(".")
    found = _OPCODES.get(name)
    if found is None:
        return *UNKNOWN, False
    unit, kind = found
    if kind is Kind.LOAD and "STRONG" in modifiers and "GPU" in modifiers:
        kind = Kind.L2_LOAD
    return unit, kind, True


def access_bytes(opcode: str) -> int:
    """Bytes a lane of a memory instruction, as the simulator reads them from the opcode (`LDG.E.U8`, `LDG.E.64`):
    the width that the tracer states may be wrong."""
    for part in opcode.split("."):
        digits = part.removeprefix("U")
        if digits.isdigit():
            return min(int(digits) // _BITS, _MOST_BYTES)
    return _WORD_BYTES


def memory_operand_expected(kind: Kind) -> bool:
    """Whether an instruction of this kind must carry addresses when lanes are active."""
    return kind >= Kind.SHARED and kind not in (Kind.COPY_GROUP, Kind.COPY_WAIT)
