/* The pattern of L in P A P^T = L L^T: native/symbolic.h finds it, and native/cholesky.h works by it. */

/* A supernode is cut into panels; the columns of the later ones are rows of the earlier. Panel p has the columns
 * first[p] .. first[p + 1] - 1 and the rows row[start[p]] .. row[start[p + 1] - 1] below them. */
typedef struct {
    int32_t n, panels, block, tallest; /* tallest: rows of a panel at most, columns counted too */
    const int32_t *first;
    int64_t *start;
    int32_t *row;
    /* Updates of panel p by earlier ones: update[p] .. update[p + 1] - 1. The rows begin .. end - 1 of the source are
     * columns of p, and those from begin on are its rows at position[offset ..], columns counted too. Where these are
     * all in a row, the offset is into the numbers from 0 to `tallest`, with which `position` begins. */
    int64_t *update;
    int32_t *source, *begin, *end;
    int64_t *offset;
    int32_t *position;
    /* Blocks of A in panel p: entry[p] .. entry[p + 1] - 1; which of A's, and to which scalar of the panel each goes. */
    int64_t *entry, *block_of, *target;
} Panels;
