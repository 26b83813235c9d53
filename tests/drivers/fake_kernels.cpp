// fake_kernels.cpp: a shared object of kernels for the fake driver, as a test with processes brings it along.
#include "tests/fake_cuda/kernels.hpp"

namespace {

void put_answer(FakeBlock&, int* to) { *to = 42; }

}  // namespace

extern "C" void fake_cuda_kernels(FakeKernelTable add) { add(fake_kernel<put_answer>("put_answer")); }
