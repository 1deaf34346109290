/* Shares the rows and columns of a grid among blocks, so that stencils find their neighbours near by.
 *
 * A block takes a tile of 64 columns and 4 rows at a time, then the tile below it, down a strip: of what a stencil reads
 * above, the last tiles' loads have left it in the multiprocessor's cache, and two warps side by side share what each
 * reads beyond its end. Strips side by side are the work of blocks that run at the same time. On a grid of fewer columns
 * tiles are narrower and taller. */
struct Tiles {
    int shift;                /* 2^shift columns of a tile */
    optpy_index tall, height; /* rows of a tile, and of the strip that a block takes at a time */
    optpy_index across;       /* strips side by side */
    optpy_uindex strips;
};

OPTPY_FN Tiles optpy_tiles(optpy_index rows, optpy_index columns) {
    Tiles t;
    t.shift = 6;
    while (t.shift > 0 && columns <= (optpy_index)1 << (t.shift - 1)) --t.shift;
    t.tall = OPTPY_THREADS >> t.shift;
    t.across = ((columns - 1) >> t.shift) + 1;
    const optpy_index down = (rows - 1) / t.tall + 1;
    /* Tall strips read few rows twice; but all blocks must end at nearly the same time. */
    const optpy_uindex deep = (optpy_uindex)t.across * down / (gridDim.x * 8u);
    t.height = (deep < 1 ? 1 : deep > 32 ? 32 : (optpy_index)deep) * t.tall;
    t.strips = (optpy_uindex)t.across * ((rows - 1) / t.height + 1);
    return t;
}

OPTPY_FN optpy_index optpy_tile_column(const Tiles *t, optpy_uindex strip) {
    return ((optpy_index)(strip % t->across) << t->shift) + (threadIdx.x & ((1u << t->shift) - 1));
}

OPTPY_FN optpy_index optpy_tile_row(const Tiles *t, optpy_uindex strip) {
    return (optpy_index)(strip / t->across) * t->height;
}
