"""The function of an energy's library that adds up a row of the assembled J^T J."""

from __future__ import annotations

from collections.abc import Iterator

from optpy.ir import BlockEntry, Field, NormalMatrix, NormalTerm
from optpy.kernels.codegen.structures import Structure
from optpy.kernels.codegen.symbol_table import SymbolTable
from optpy.kernels.toolchain.headers import native_header

# The residuals of one term whose read number s is the node of a row.
NORMAL_VISITS = Structure(
    "NormalVisits",
    """
    const int64_t *first;     /* [row]: its visits; one more than rows */
    const int64_t *place;     /* [visit]: where the residual's numbers stand in their field */
    const int32_t *block;     /* [visit][read]: the block of the row that belongs to each read; negative: none */
""",
)


def normal_rows_header() -> str:
    """The C text of what an energy's library and that which assembles tell each other; goes after ``kernel_header``."""
    return f"{NORMAL_VISITS.text}\n\n{native_header('kernels/c/normal_rows.h')}"


def row_source(matrix: NormalMatrix, symbols: SymbolTable) -> str:
    """The function that adds up the blocks of a row of an energy's matrix; goes after kernel.h."""
    n = len(matrix.elements)
    row = [
        "OPTPY_EXPORT void optpy_add_row(const Context *c, const NormalVisits *visits, int64_t i, double *matrix) {",
        "    (void)c, (void)visits, (void)i, (void)matrix;",
        *(f"    {line}" for k, (term, read) in enumerate(_views(matrix)) for line in _visit(k, n, term, read, symbols)),
        "}",
    ]
    return "\n".join([normal_rows_header(), "", *row])


def point_step(field: Field, symbols: SymbolTable) -> int:
    """Numbers from one point of a field to the next."""
    return field.channels if field.dims in symbols.interleaved else 1


def _views(matrix: NormalMatrix) -> Iterator[tuple[NormalTerm, int]]:
    """Each term from each of its reads, in the order of the native visits."""
    for term in matrix.terms:
        for read in range(len(term.reads)):
            yield term, read


def _visit(number: int, channels: int, term: NormalTerm, read: int, symbols: SymbolTable) -> list[str]:
    """The loop over the residuals of a term whose read is the row's node."""
    if not any(term.blocks[read, other] for other in range(len(term.reads))):
        return []
    used = sorted(
        {e.channel for (s, _), block in term.blocks.items() if s == read for e in block if e.channel is not None}
    )
    body = []
    if term.stored is not None and used:
        field = symbols.fields[term.stored]
        step = point_step(term.stored, symbols)
        body.append(f"const double *at = (const double *)c->field[{field}] + {step} * v->place[q];")
        body += [f"const double v{n} = at[{n} * c->plane[{field}]];" for n in used]
    body.append(f"const int32_t *block = v->block + q * {len(term.reads)};")
    for other in range(len(term.reads)):
        entries = term.blocks[read, other]
        if entries:
            body += [
                f"if (block[{other}] >= 0) {{",
                f"    double *B = matrix + block[{other}] * (int64_t){channels**2};",
            ]
            body += [f"    {_addition(e, channels)}" for e in entries]
            body.append("}")
    return [
        "{",
        f"    const NormalVisits *v = &visits[{number}];",
        "    for (int64_t q = v->first[i]; q < v->first[i + 1]; q++) {",
        *(f"        {line}" for line in body),
        "    }",
        "}",
    ]


def _addition(entry: BlockEntry, channels: int) -> str:
    target = f"B[{entry.row * channels + entry.column}]"
    factor = repr(entry.factor)
    if entry.channel is None:
        return f"{target} += {factor};"
    if entry.factor == 1:
        return f"{target} += v{entry.channel};"
    if entry.factor == -1:
        return f"{target} -= v{entry.channel};"
    return f"{target} += {factor} * v{entry.channel};"
