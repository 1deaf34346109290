/* What an energy's library and that of assembly.h tell each other of the rows of J^T J. */

/* Adds the row's blocks up: generated, since it depends on the energy which numbers they are made of. */
typedef void (*NormalRow)(const Context *c, const NormalVisits *visits, int64_t i, double *matrix);
