// driver_test.cpp: which CUDA driver is found, and each reason why there is none.
#include "src/drivers/cuda/driver.hpp"

#include <dlfcn.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "src/drivers/library.hpp"
#include "tests/drivers/fake.hpp"
#include "tests/subprocess.hpp"

using namespace weft::internal;
using namespace weft::internal::test;
using cuda::Driver;

namespace {

Status why_not(const std::string& library) { return Driver::open(library).take_status(); }

// The output of `peer get` with these variables.
std::string told(std::vector<std::string> variables, const std::string& what = "get") {
    const ProcessResult outcome = run({DRIVER_PEER, what}, std::move(variables));
    INFO(outcome.error);
    CHECK(outcome.status == 0);
    return outcome.output;
}
const std::string fake_library = "WEFT_CUDA_LIBRARY=" FAKE_CUDA_LIBRARY;

}  // namespace

TEST_CASE("a missing library is a sentence that names it", "[driver]") {
    CHECK_ERROR(why_not("/nowhere/libcuda.so.1"), "cuda.driver");
    CHECK(contains(why_not("/nowhere/libcuda.so.1").sentence(), "/nowhere/libcuda.so.1"));
    CHECK(contains(told({"WEFT_CUDA_LIBRARY=/nowhere/libcuda.so.1"}), "[cuda.driver]"));
}

TEST_CASE("a library that was just loaded is found while other threads look, too", "[driver]") {
    const char* const name = "libanl.so.1";  // of the C library, and nobody loads it
    REQUIRE(!DynamicLibrary::loaded(name));
    std::atomic<bool> ends{false};
    std::vector<std::thread> others;
    for (int i = 0; i < 3; ++i)
        others.emplace_back([&] {
            while (!ends) (void)DynamicLibrary::loaded(name);
        });
    int missed = 0;
    for (int round = 0; round < 100; ++round) {
        void* const handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
        missed += handle == nullptr || !DynamicLibrary::loaded(name);
        if (handle != nullptr) dlclose(handle);
    }
    ends = true;
    for (std::thread& other : others) other.join();
    CHECK(missed == 0);
}

TEST_CASE("the user can do without GPUs", "[driver]") {
    CHECK(contains(told({"WEFT_CUDA_LIBRARY=none"}), "[driver.disabled]"));
}

TEST_CASE("a library that is no driver is recognised", "[driver]") {
    CHECK_ERROR(why_not(NO_DRIVER_LIBRARY), "cuda.driver");
}

TEST_CASE("the toolkit's stub counts as no driver, wherever it answers first", "[driver]") {
    CHECK_ERROR(why_not(STUB_LIBRARY), "cuda.driver");
    CHECK_ERROR(why_not(LATE_STUB_LIBRARY), "cuda.driver");
    const std::string real = TOOLKIT "/lib64/stubs/libcuda.so";
    if (std::filesystem::exists(real)) CHECK_ERROR(why_not(real), "cuda.driver");
}

TEST_CASE("a driver that is too old is reported with both versions", "[driver]") {
    fake::reset("version 11030");
    CHECK_ERROR(why_not(FAKE_CUDA_LIBRARY), "cuda.driver");
    CHECK(contains(why_not(FAKE_CUDA_LIBRARY).sentence(), "11.3"));
    CHECK(contains(why_not(FAKE_CUDA_LIBRARY).sentence(), "11.4"));
    fake::reset("");
}

TEST_CASE("a driver from before 12.0 is asked by the older function", "[driver]") {
    FakeDriver newest;
    CHECK(newest->LibraryLoadData != nullptr);
    fake::reset("version 11080");
    const Driver* old = take(Driver::open(OLD_DRIVER_LIBRARY));
    CHECK(old->version() == 11080);
    CHECK(old->LaunchKernelEx != nullptr);
    CHECK(old->LibraryLoadData == nullptr);
    CHECK(old->MemCreate != nullptr);
    delete old;
}

TEST_CASE("a driver has the functions of its version and no others", "[driver]") {
    FakeDriver newest;
    CHECK(newest->version() == 13000);
    CHECK(newest->FuncLoad != nullptr);
    CHECK(newest->MulticastCreate != nullptr);
    FakeDriver old("version 12000");
    CHECK(old->LibraryLoadData != nullptr);
    CHECK(old->FuncLoad == nullptr);
    CHECK_ERROR(old->need(old->MulticastCreate != nullptr, "cuMulticastCreate"), "cuda.driver");
    FakeDriver oldest("version 11040");
    CHECK(oldest->LaunchKernelEx == nullptr);
    CHECK(oldest->StreamWriteValue32 == nullptr);
    CHECK(oldest->DeviceGetUuid != nullptr);
}

TEST_CASE("the error of cuInit is reported by name", "[driver]") {
    fake::reset("gpus 0");
    const Status none = why_not(FAKE_CUDA_LIBRARY);
    CHECK_ERROR(none, "cuda.call");
    CHECK(contains(none.sentence(), "CUDA_ERROR_NO_DEVICE (100)"));
    fake::reset("fault cuInit 1 802");
    CHECK(contains(why_not(FAKE_CUDA_LIBRARY).sentence(), "CUDA_ERROR_SYSTEM_NOT_READY (802)"));
    fake::reset("");
}

TEST_CASE("a failure names the function, the error and its meaning", "[driver]") {
    FakeDriver driver;
    CHECK(driver->check(CUDA_SUCCESS, "do {}", "that").ok());
    const Status failure = driver->check(CUDA_ERROR_INVALID_VALUE, "allocate {} bytes", 7);
    CHECK_ERROR(failure, "cuda.call");
    CHECK(failure.sentence() == "CUDA could not allocate 7 bytes: CUDA_ERROR_INVALID_VALUE (1), invalid argument");
    CHECK_ERROR(driver->check(CUDA_ERROR_OUT_OF_MEMORY, "x"), "cuda.resources");
    // 1000 lies within the bits of the enumeration, which UBSan checks, and no error of CUDA has that number.
    CHECK(contains(driver->check(CUresult(1000), "x").sentence(), "error 1000, unknown"));
}

TEST_CASE("the process's driver is opened once, by the first thread", "[driver]") {
    CHECK(contains(told({fake_library}), "version 13000"));
    CHECK(told({fake_library}, "threads") == "one driver, initialised once\n");
}

TEST_CASE("a forked child gets an error, as CUDA does not survive, and releases nothing of its parent", "[driver]") {
    const std::string text = told({fake_library, "FAKE_CUDA=leaks fatal"}, "fork");
    CHECK(contains(text, "child: process"));
    CHECK(contains(text, "before CUDA is used [cuda.forked]"));
    CHECK(contains(text, "child's call: CUDA could not make a context current"));
    CHECK(contains(text, "child gave back 0 times"));
    CHECK(contains(text, "parent: still works"));
}

TEST_CASE("a process that forks before it uses CUDA has it in the child", "[driver]") {
    CHECK(contains(told({fake_library}, "early_fork"), "child: version 13000"));
}

TEST_CASE("leaks at the end of a process are reported", "[fake]") {
    const ProcessResult outcome = run({DRIVER_PEER, "leak"}, {fake_library, "FAKE_CUDA=leaks fatal"});
    CHECK(outcome.status == 86);
    CHECK(contains(outcome.error, "4096 bytes of cuMemAlloc"));
    CHECK(contains(outcome.error, "1 streams"));
}

TEST_CASE("memory that was freed faults when it is used", "[fake]") {
    const ProcessResult outcome = run({DRIVER_PEER, "use_after_free"}, {fake_library});
    CHECK(contains(outcome.output, "before"));
    CHECK(!contains(outcome.output, "after"));
    CHECK(outcome.status != 0);
}

TEST_CASE("kernels of a shared object are found by name", "[fake]") {
    CHECK(told({fake_library, "FAKE_CUDA_KERNELS=" FAKE_KERNELS}, "kernel") == "42\n");
    const ProcessResult outcome = run({DRIVER_PEER, "kernel"}, {fake_library});
    CHECK(contains(outcome.output, "find the kernel put_answer: CUDA_ERROR_NOT_FOUND (500)"));
}
