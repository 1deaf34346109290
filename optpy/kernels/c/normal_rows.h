/* What an energy's library and that of assembly.h tell each other of the rows of J^T J. */

/* The residuals of one term whose read number s is the node of a row. */
typedef struct {
    const int64_t *first;     /* [row]: its visits; one more than rows */
    const int64_t *place;     /* [visit]: where the residual's numbers stand in their field */
    const int32_t *block;     /* [visit][read]: the block of the row that belongs to each read; negative: none */
} NormalVisits;

/* Adds the row's blocks up: generated, since it depends on the energy which numbers they are made of. */
typedef void (*NormalRow)(const Context *c, const NormalVisits *visits, int64_t i, double *matrix);
