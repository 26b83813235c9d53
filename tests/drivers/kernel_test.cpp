// kernel_test.cpp: device code is loaded and launched. Tested: which blocks run at once, and launches that do not fit.
#include "src/drivers/cuda/kernel.hpp"

#include <atomic>
#include <chrono>
#include <thread>

#include "src/drivers/cuda/graph.hpp"
#include "src/drivers/cuda/memory.hpp"
#include "src/drivers/cuda/stream.hpp"
#include "tests/drivers/fake.hpp"
#include "tests/fake_cuda/kernels.hpp"
#include "tests/subprocess.hpp"

using namespace weft::internal;
using namespace weft::internal::test;
using namespace weft::internal::cuda;

namespace {

struct Shift {
    int64_t by;
    int32_t times;
};

void add(FakeBlock& block, int64_t* data, Shift shift) {
    std::atomic_ref(data[block.index[0]]).fetch_add(shift.by * shift.times);
}

// Arrives and waits until `expected` blocks have, or gives up: then it writes -1.
void meet(FakeBlock&, int32_t* arrived, int32_t expected, int64_t patience_ms) {
    std::atomic_ref count(*arrived);
    ++count;
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(patience_ms);
    while (count.load() < expected && count.load() > 0) {
        if (std::chrono::steady_clock::now() > end) return count.store(-1'000'000);
        std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
}

// Each block writes its number; after the barrier it reads its neighbour's.
void pass_on(FakeBlock& block, int32_t* written, int32_t* read) {
    const unsigned own = block.index[0], next = (own + 1) % block.grid[0];
    for (int32_t round = 1; round <= 3; ++round) {
        written[own] = int32_t(own) * round;
        block.sync_grid(block);
        read[own] = written[next];
        block.sync_grid(block);
    }
}

void use_shared(FakeBlock& block, uint32_t* bytes) {
    for (unsigned i = 0; i < block.shared_bytes; ++i) block.shared[i] = std::byte(i);
    *bytes = block.shared_bytes;
}

void fault(FakeBlock& block) { block.fail(block, CUDA_ERROR_ILLEGAL_ADDRESS); }

constexpr uint32_t code[4] = {0xBA55ED50};

// A fake driver, and one device with the kernels of this file.
struct Device {
    explicit Device(const std::string& setting = "") : driver(setting) {
        static const bool added = [] {
            fake_cuda_add_kernel(fake_kernel<add>("add"));
            fake_cuda_add_kernel(fake_kernel<meet>("meet"));
            fake_cuda_add_kernel(fake_kernel<meet>("meet_again"));
            fake_cuda_add_kernel(fake_kernel<pass_on>("pass_on"));
            fake_cuda_add_kernel(fake_kernel<use_shared>("use_shared"));
            fake_cuda_add_kernel(fake_kernel<fault>("fault"));
            FakeKernel few = fake_kernel<fault>("few_threads");
            few.threads_max = 256;
            fake_cuda_add_kernel(few);
            return true;
        }();
        (void)added;
        context = driver.context();
        program = take(Library::load(*driver, code));
        memory = take(PinnedMemory::allocate(context, 4096));
    }
    Kernel kernel(const char* name, unsigned shared_bytes = 0) {
        return take(Kernel::load(program, context, name, shared_bytes));
    }
    template <class T>
    T* at() {
        return static_cast<T*>(memory.data());
    }

    FakeDriver driver;
    Context context;
    Library program;
    PinnedMemory memory;
};

// Its arguments live until the launch has copied them.
template <class... Arguments>
Status launch(const Kernel& kernel, const LaunchShape& shape, CUstream stream, Arguments... arguments) {
    void* pointers[] = {&arguments..., nullptr};
    return kernel.launch(shape, stream, pointers);
}

}  // namespace

TEST_CASE("a kernel runs once a block with the arguments it was launched with", "[kernel]") {
    Device device;
    const ContextScope scope(device.context);
    const Kernel kernel = device.kernel("add");
    const Stream stream = take(Stream::create(device.context));
    for (int i = 1; i <= 10; ++i)
        demand(launch(kernel, {.blocks = 40, .threads = 128}, stream.handle(), device.at<int64_t>(), Shift{i, 2}));
    demand(stream.synchronize());
    for (int block = 0; block < 40; ++block) CHECK(device.at<int64_t>()[block] == 110);
}

TEST_CASE("a captured launch keeps its arguments", "[kernel]") {
    Device device;
    const ContextScope scope(device.context);
    const Kernel kernel = device.kernel("add");
    const Stream stream = take(Stream::create(device.context));
    demand(Graph::begin(*device.driver, stream.handle()));
    demand(launch(kernel, {.blocks = 4}, stream.handle(), device.at<int64_t>(), Shift{3, 1}));
    const Graph graph = take(Graph::end(*device.driver, stream.handle()));
    for (int i = 0; i < 20; ++i) demand(graph.launch(stream.handle()));
    demand(stream.synchronize());
    CHECK(device.at<int64_t>()[3] == 60);
}

TEST_CASE("a missing kernel and wrong device code are reported by name", "[kernel]") {
    Device device;
    CHECK(contains(Kernel::load(device.program, device.context, "nobody").status().sentence(),
                   "find the kernel nobody: CUDA_ERROR_NOT_FOUND (500)"));
    CHECK(contains(Library::load(*device.driver, "rubbish").status().sentence(), "CUDA_ERROR_INVALID_IMAGE (200)"));
}

TEST_CASE("a driver that is older than the code is reported with both versions", "[kernel]") {
    {
        FakeDriver driver("version 12080");
        const std::string sentence = Library::load(*driver, code).status().sentence();
        CHECK(contains(sentence, "load Weft's device code: CUDA_ERROR_UNSUPPORTED_PTX_VERSION"));
        CHECK(contains(sentence, "12.8"));
        CHECK(contains(sentence, version_text(CUDA_VERSION)));
    }
    FakeDriver driver("version 11080");
    CHECK_ERROR(Library::load(*driver, code), "cuda.driver");
}

TEST_CASE("kernels of two streams that fit together run together", "[kernel]") {
    Device device("multiprocessors 4");
    const ContextScope scope(device.context);
    const Kernel kernel = device.kernel("meet");
    const Stream one = take(Stream::create(device.context)), other = take(Stream::create(device.context));
    const LaunchShape half{.blocks = 4, .threads = 1024};
    demand(launch(kernel, half, one.handle(), device.at<int32_t>(), 8, int64_t(60'000)));
    demand(launch(kernel, half, other.handle(), device.at<int32_t>(), 8, int64_t(60'000)));
    demand(one.synchronize());
    demand(other.synchronize());
    CHECK(*device.at<int32_t>() == 8);
}

TEST_CASE("kernels that wait for each other and do not fit together fail at their deadline", "[kernel]") {
    Device device("multiprocessors 4");
    const ContextScope scope(device.context);
    const Kernel kernel = device.kernel("meet");
    CHECK(take(kernel.blocks_per_multiprocessor(1024, 0)) == 2);
    CHECK(take(kernel.blocks_per_multiprocessor(512, 100 * 1024)) == 2);
    const Stream one = take(Stream::create(device.context)), other = take(Stream::create(device.context));
    // Five blocks of eight places, twice: the last two find no room.
    const LaunchShape more_than_half{.blocks = 5, .threads = 1024};
    demand(launch(kernel, more_than_half, one.handle(), device.at<int32_t>(), 10, int64_t(200)));
    demand(launch(kernel, more_than_half, other.handle(), device.at<int32_t>(), 10, int64_t(200)));
    demand(one.synchronize());
    demand(other.synchronize());
    CHECK(*device.at<int32_t>() < 0);
}

TEST_CASE("a grid that is larger than the device runs in waves", "[kernel]") {
    Device device("multiprocessors 1");
    const ContextScope scope(device.context);
    const Kernel kernel = device.kernel("add");
    const Stream stream = take(Stream::create(device.context));
    demand(launch(kernel, {.blocks = 300, .threads = 1024}, stream.handle(), device.at<int64_t>(), Shift{1, 1}));
    demand(stream.synchronize());
    for (int block = 0; block < 300; ++block) CHECK(device.at<int64_t>()[block] == 1);
}

TEST_CASE("blocks of a cooperative launch run together, and one that cannot fit is refused", "[kernel]") {
    Device device("multiprocessors 2");
    const ContextScope scope(device.context);
    const Kernel kernel = device.kernel("pass_on");
    const Stream stream = take(Stream::create(device.context));
    const LaunchShape all{.blocks = 8, .threads = 512, .cooperative = true};
    demand(launch(kernel, all, stream.handle(), device.at<int32_t>(), device.at<int32_t>() + 100));
    demand(stream.synchronize());
    for (int block = 0; block < 8; ++block) CHECK(device.at<int32_t>()[100 + block] == (block + 1) % 8 * 3);
    const LaunchShape too_many{.blocks = 9, .threads = 512, .cooperative = true};
    CHECK(contains(launch(kernel, too_many, stream.handle(), device.at<int32_t>(), device.at<int32_t>()).sentence(),
                   "launch the kernel pass_on with 9 blocks of 512 threads: CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE"));
}

TEST_CASE("a cooperative launch waits until all its blocks have room", "[kernel]") {
    Device device("multiprocessors 2");
    const ContextScope scope(device.context);
    const Kernel meet = device.kernel("meet"), pass_on = device.kernel("pass_on");
    const Stream one = take(Stream::create(device.context)), other = take(Stream::create(device.context));
    demand(launch(meet, {.blocks = 1, .threads = 512}, one.handle(), device.at<int32_t>(), 2, int64_t(60'000)));
    REQUIRE(eventually([&] { return std::atomic_ref(*device.at<int32_t>()).load() == 1; }));
    demand(launch(pass_on, {.blocks = 8, .threads = 512, .cooperative = true}, other.handle(),
                  device.at<int32_t>() + 100, device.at<int32_t>() + 200));
    CHECK(!take(other.done()));
    std::atomic_ref(*device.at<int32_t>()).store(2);
    demand(other.synchronize());
    demand(one.synchronize());
    CHECK(device.at<int32_t>()[200] == 3);
}

TEST_CASE("more shared memory than usual must be asked for", "[kernel]") {
    Device device;
    const ContextScope scope(device.context);
    const Stream stream = take(Stream::create(device.context));
    const LaunchShape large{.threads = 32, .shared_bytes = 100'000};
    const Kernel usual = device.kernel("use_shared");
    CHECK(!launch(usual, large, stream.handle(), device.at<uint32_t>()));
    const Kernel asked = device.kernel("use_shared", 100'000);
    demand(launch(asked, large, stream.handle(), device.at<uint32_t>()));
    demand(stream.synchronize());
    CHECK(*device.at<uint32_t>() == 100'000);
    CHECK(contains(Kernel::load(device.program, device.context, "use_shared", 300'000).status().sentence(),
                   "let the kernel use_shared use 300000 bytes of shared memory"));
}

TEST_CASE("a kernel's own limit of threads is known and kept", "[kernel]") {
    Device device;
    const ContextScope scope(device.context);
    const Kernel kernel = device.kernel("few_threads");
    CHECK(kernel.threads_max() == 256);
    CHECK(!launch(kernel, {.threads = 512}, nullptr));
}

TEST_CASE("attributes are given to devices that know them", "[kernel]") {
    const LaunchShape shape{.blocks = 4, .threads = 32, .cluster_blocks = 2, .remote_sync_domain = true};
    for (const int sm : {90, 80}) {
        Device device("sm " + std::to_string(sm));
        const ContextScope scope(device.context);
        const Kernel kernel = device.kernel("add");
        CHECK(launch(kernel, shape, nullptr, device.at<int64_t>(), Shift{1, 1}).ok() == (sm == 90));
        demand(device.context.synchronize());
    }
}

TEST_CASE("a kernel's fault is an error of every call that follows on its context", "[kernel]") {
    Device device;
    const ContextScope scope(device.context);
    const Kernel kernel = device.kernel("fault");
    const Stream stream = take(Stream::create(device.context)), other = take(Stream::create(device.context));
    demand(launch(kernel, {}, stream.handle()));
    CHECK(contains(stream.synchronize().sentence(), "CUDA_ERROR_ILLEGAL_ADDRESS (700), an illegal memory access"));
    CHECK(!other.done());
    CHECK(!launch(kernel, {}, other.handle()));
    // The other device is well.
    const Context well = device.driver.context(1);
    demand(take(Stream::create(well)).synchronize());
    fake::reset("");  // what the lost context cannot give back
}

TEST_CASE("a kernel that is loaded at its first launch waits for all that runs; one loaded before does not",
          "[kernel]") {
    Device device;
    const ContextScope scope(device.context);
    const Kernel meet = device.kernel("meet");
    const Kernel loaded = device.kernel("add");
    const Stream one = take(Stream::create(device.context)), other = take(Stream::create(device.context));
    demand(launch(meet, {}, one.handle(), device.at<int32_t>(), 2, int64_t(60'000)));
    REQUIRE(eventually([&] { return std::atomic_ref(*device.at<int32_t>()).load() == 1; }));
    // Launched and done while the other still runs.
    demand(launch(loaded, {}, other.handle(), device.at<int64_t>() + 8, Shift{1, 1}));
    demand(other.synchronize());
    CHECK(!take(one.done()));

    // By hand, without loading.
    CUkernel lazy = nullptr;
    REQUIRE(device.driver->LibraryGetKernel(&lazy, device.program.handle(), "meet_again") == CUDA_SUCCESS);
    std::atomic<bool> launched{false};
    std::thread launcher([&] {
        const ContextScope there(device.context);
        CUlaunchConfig config{};
        config.gridDimX = config.gridDimY = config.gridDimZ = 1;
        config.blockDimX = config.blockDimY = config.blockDimZ = 1;
        config.hStream = other.handle();
        int32_t* arrived = device.at<int32_t>() + 50;
        int32_t expected = 1;
        int64_t patience = 0;
        void* arguments[] = {&arrived, &expected, &patience};
        CHECK(device.driver->LaunchKernelEx(&config, reinterpret_cast<CUfunction>(lazy), arguments, nullptr) ==
              CUDA_SUCCESS);
        launched.store(true);
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    CHECK(!launched.load());
    std::atomic_ref(*device.at<int32_t>()).store(2);
    launcher.join();
    demand(one.synchronize());
    demand(other.synchronize());
}
