// fake_mpi.cpp: libmpi_fake.so, of an MPI library as much as a stranger may ask it.
extern "C" {

static int initialized = 0, finalized = 0;

void fake_mpi_set(int is_initialized, int is_finalized) {
    initialized = is_initialized;
    finalized = is_finalized;
}
int MPI_Initialized(int* flag) { return *flag = initialized, 0; }
int MPI_Finalized(int* flag) { return *flag = finalized, 0; }
}
