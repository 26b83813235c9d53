// peer.cpp: the other process in tests of src/drivers: `peer WHAT ARGUMENTS...` prints what it saw.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "src/drivers/cuda/event.hpp"
#include "src/drivers/cuda/ipc.hpp"
#include "src/drivers/cuda/kernel.hpp"
#include "src/drivers/cuda/memory.hpp"
#include "src/drivers/cuda/stream.hpp"
#include "src/drivers/cuda/vmm.hpp"
#include "tests/drivers/hex.hpp"
#include "tests/fake_cuda/control.hpp"

using namespace weft::internal;
using namespace weft::internal::cuda;

namespace {

template <class T>
T need(Result<T> result) {
    if (result) return std::move(*result);
    std::printf("%s\n", result.status().text().c_str());
    std::fflush(stdout);
    _exit(0);
}

const Driver& driver() { return *need(Driver::get()); }

void get() { std::printf("version %d of %s\n", driver().version(), driver().file().c_str()); }

void threads() {
    std::vector<const Driver*> seen(8);
    std::vector<std::thread> all;
    for (const Driver*& each : seen) all.emplace_back([&each] { each = need(Driver::get()); });
    for (std::thread& thread : all) thread.join();
    bool same = true;
    for (const Driver* each : seen) same &= each == seen[0];
    std::printf("%s driver, initialised %s\n", same ? "one" : "several", fake::calls("cuInit") == 1 ? "once" : "often");
}

void wait_for_child(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0) std::printf("child ended with %d\n", status);
}

void in_child_after_use() {
    const Context context = need(Context::retain(driver(), 0));
    // No stream: a thread of it could hold the allocator's lock in the middle of the fork.
    DeviceMemory inherited = need(DeviceMemory::allocate(context, 64));
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        std::printf("child: %s\n", Driver::get().status().text().c_str());
        std::printf("child's call: %s\n", DeviceMemory::allocate(context, 64).status().sentence().c_str());
        inherited = DeviceMemory();
        std::printf("child gave back %d times\n", fake::calls("cuMemFree"));
        std::fflush(stdout);
        _exit(0);
    }
    wait_for_child(child);
    *static_cast<volatile char*>(inherited.data()) = 1;
    std::printf("parent: %s\n", context.synchronize().ok() ? "still works" : "broken");
}

void in_child_before_use() {
    const pid_t child = fork();
    if (child == 0) {
        std::printf("child: ");
        get();
        std::fflush(stdout);
        _exit(0);
    }
    wait_for_child(child);
}

void leak() {
    // Static pointers: LeakSanitizer must not end the process before the fake driver reports.
    static auto* const context = new Context(need(Context::retain(driver(), 0)));
    static auto* const memory = new DeviceMemory(need(DeviceMemory::allocate(*context, 4096)));
    static auto* const stream = new Stream(need(Stream::create(*context)));
    (void)memory, (void)stream;
}

void use_after_free() {
    const Context context = need(Context::retain(driver(), 0));
    volatile char* address = nullptr;
    {
        const DeviceMemory memory = need(DeviceMemory::allocate(context, 64));
        address = static_cast<volatile char*>(memory.data());
        address[0] = 1;
        std::printf("before\n");
        std::fflush(stdout);
    }
    address[0] = 2;
    std::printf("after\n");
}

void kernel() {
    const Context context = need(Context::retain(driver(), 0));
    const uint32_t code[4] = {0xBA55ED50};
    const Library library = need(Library::load(driver(), code));
    const Kernel put = need(Kernel::load(library, context, "put_answer"));
    const Stream stream = need(Stream::create(context));
    const PinnedMemory memory = need(PinnedMemory::allocate(context, 64));
    const ContextScope scope(context);
    CUdeviceptr address = memory.address();
    void* arguments[] = {&address};
    if (const Status status = put.launch({}, stream.handle(), arguments); !status)
        std::printf("%s\n", status.sentence().c_str());
    (void)stream.synchronize().ok();
    std::printf("%d\n", *static_cast<int*>(memory.data()));
}

// Prints the number at the mapped place, and writes another.
void exchange(volatile uint64_t* word, uint64_t answer) {
    std::printf("read %llu\n", static_cast<unsigned long long>(*word));
    *word = answer;
}

void open_ipc(const char* handle, uint64_t offset) {
    const Context context = need(Context::retain(driver(), 0));
    IpcExport source;
    from_hex(handle, &source.handle, sizeof source.handle);
    source.offset = offset;
    const IpcMapping one = need(IpcMapping::open(context, source));
    const IpcMapping again = need(IpcMapping::open(context, source));
    std::printf("%s address\n", one.base() == again.base() ? "same" : "another");
    exchange(reinterpret_cast<uint64_t*>(one.address()), 77);
}

void import_vmm(int device, int fd, size_t bytes) {
    const Context context = need(Context::retain(driver(), device));
    const UnsharedFd descriptors[] = {UnsharedFd(Fd(fd))};
    const uint64_t sizes[] = {bytes};
    const VmmMemory memory = need(VmmMemory::import(context, descriptors, sizes));
    exchange(static_cast<uint64_t*>(memory.data()), 78);
}

void wait_event(const char* handle) {
    const Context context = need(Context::retain(driver(), 0));
    CUipcEventHandle bytes;
    from_hex(handle, &bytes, sizeof bytes);
    const Event event = need(Event::import(context, bytes));
    std::printf("%s\n", need(event.done()) ? "done" : "not yet");
    std::fflush(stdout);
    const Stream stream = need(Stream::create(context));
    if (!stream.wait_for(event) || !stream.synchronize()) std::printf("failed\n");
    std::printf("came\n");
}

}  // namespace

int main(int count, char** arguments) {
    const std::string what = count > 1 ? arguments[1] : "";
    if (what == "get") get();
    if (what == "threads") threads();
    if (what == "fork") in_child_after_use();
    if (what == "early_fork") in_child_before_use();
    if (what == "leak") leak();
    if (what == "use_after_free") use_after_free();
    if (what == "kernel") kernel();
    if (what == "ipc") open_ipc(arguments[2], std::stoull(arguments[3]));
    if (what == "vmm") import_vmm(std::atoi(arguments[2]), std::atoi(arguments[3]), std::stoull(arguments[4]));
    if (what == "event") wait_event(arguments[2]);
    std::fflush(stdout);
    return 0;
}
