// no_gpu.cpp: gpu.hpp in a build without CUDA's headers: there is no GPU.
#include "failure.hpp"
#include "gpu.hpp"

namespace perf {

struct Gpu::Parts {};

Gpu::Gpu(int device, std::unique_ptr<Parts> parts) : device_(device), parts_(std::move(parts)) {}
Gpu::~Gpu() = default;

int Gpu::count() { throw Failure("this build of Weft has no CUDA: -g needs one that has (docs/guide/gpu.md)"); }
std::unique_ptr<Gpu> Gpu::use(int, bool) { return count(), nullptr; }

// No caller reaches these functions: no Gpu can be made.
std::string Gpu::name() const { return ""; }
void Gpu::make_current() const {}
void* Gpu::stream() const { return nullptr; }
void* Gpu::allocate(size_t) { return nullptr; }
void Gpu::free(void*) {}
void Gpu::to_device(void*, const void*, size_t) {}
void Gpu::to_host(void*, const void*, size_t) {}
void Gpu::synchronize() {}
const std::string& Gpu::no_kernels() const {
    static const std::string none;
    return none;
}
void Gpu::fill(void*, size_t, const Period&) {}
size_t Gpu::count_wrong(const void*, size_t, const Period&, size_t) { return 0; }
double Gpu::time_us(const std::function<void()>&) { return 0; }
void Gpu::capture(const std::function<void()>&) {}
void Gpu::replay() {}

}  // namespace perf
