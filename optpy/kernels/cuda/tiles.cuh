/* Shares the rows and columns of a grid among blocks, so that stencils find their neighbours near by.
 *
 * A block takes a tile of 64 columns and 4 rows at a time, then the tile below it, down a strip: of what a stencil reads
 * above, the last tiles' loads have left it in the multiprocessor's cache, and two warps side by side share what each
 * reads beyond its end. Strips side by side are the work of blocks that run at the same time. On a grid of fewer columns
 * tiles are narrower and taller. The numbers of it come from the host: no thread divides for them. */
OPTPY_FN uint32_t optpy_strips_above(const Tiles *t, uint32_t strip) {
    return (uint32_t)optpy_divided((int)strip, t->by_across);
}

OPTPY_FN optpy_index optpy_tile_column(const Tiles *t, uint32_t strip) {
    const uint32_t beside = strip - optpy_strips_above(t, strip) * t->across;
    return ((optpy_index)beside << t->shift) + (threadIdx.x & ((1u << t->shift) - 1));
}

OPTPY_FN optpy_index optpy_tile_row(const Tiles *t, uint32_t strip) {
    return (optpy_index)optpy_strips_above(t, strip) * t->height;
}

/* A bit for each row of a thread in a strip, from `row` on: 1 where something is solved for, as `solved` has it for the
 * rows of the thread's column, 0 or 1 for each. Eight are loaded before anything waits for the first of them. Bits of
 * rows from `end` on mean nothing: another row's are loaded for them, which takes no branch. */
OPTPY_FN uint32_t optpy_rows_to_solve(const Tiles *t, const uint8_t *solved, optpy_index pitch, optpy_index row,
                                      optpy_index end) {
    uint32_t found = 0;
    const optpy_index first = row;
    for (int n = 0; row < end; n += 8) {
        uint8_t loaded[8];
#pragma unroll
        for (int u = 0; u < 8; ++u, row += t->tall) loaded[u] = solved[(row < end ? row : first) * pitch];
#pragma unroll
        for (int u = 0; u < 8; ++u) found |= (uint32_t)loaded[u] << (n + u);
    }
    return found;
}
