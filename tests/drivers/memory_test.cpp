// memory_test.cpp: memory of each kind: made, recognised, exported to other processes.
#include "src/drivers/cuda/memory.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "src/drivers/cuda/dma_buf.hpp"
#include "src/drivers/cuda/ipc.hpp"
#include "src/drivers/cuda/pointer.hpp"
#include "src/drivers/cuda/stream.hpp"
#include "src/drivers/cuda/vmm.hpp"
#include "tests/amount.hpp"
#include "tests/drivers/fake.hpp"
#include "tests/drivers/hex.hpp"
#include "tests/subprocess.hpp"

using namespace weft::internal;
using namespace weft::internal::test;
using namespace weft::internal::cuda;

namespace {

PointerFacts facts_of(const FakeDriver& driver, const void* address) {
    return take(describe_pointer(*driver, address));
}

// Functions that the library does not need, but users call.
template <class Function>
Function fake_function(const char* name) {
    static void* library = dlopen(FAKE_CUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    return reinterpret_cast<Function>(dlsym(library, name));
}

// The output of the other process, whose fake driver has this setting.
std::string peer(std::vector<std::string> arguments, const std::string& setting = "") {
    arguments.insert(arguments.begin(), DRIVER_PEER);
    const ProcessResult outcome = run(arguments, {"WEFT_CUDA_LIBRARY=" FAKE_CUDA_LIBRARY, "FAKE_CUDA=" + setting});
    INFO(outcome.error);
    CHECK(outcome.status == 0);
    return outcome.output;
}

uint64_t& word_at(CUdeviceptr address) { return *reinterpret_cast<uint64_t*>(address); }

}  // namespace

TEST_CASE("bytes go to a device, within it, and back", "[memory]") {
    FakeDriver driver;
    const Context context = driver.context();
    const ContextScope scope(context);
    const Stream stream = take(Stream::create(context));
    const DeviceMemory one = take(DeviceMemory::allocate(context, 1000)),
                       other = take(DeviceMemory::allocate(context, 1000));
    const std::string text = "what goes there comes back";
    char back[100] = "";
    demand(fill_async(*driver, other.address(), 'x', 1000, stream.handle()));
    demand(
        copy_async(*driver, one.address(), reinterpret_cast<CUdeviceptr>(text.data()), text.size(), stream.handle()));
    demand(copy_async(*driver, other.address() + 10, one.address(), text.size(), stream.handle()));
    demand(copy_async(*driver, reinterpret_cast<CUdeviceptr>(back), other.address() + 9, text.size() + 2,
                      stream.handle()));
    demand(stream.synchronize());
    CHECK(std::string(back) == "x" + text + "x");
    // Beyond the end.
    CHECK(contains(copy_async(*driver, one.address() + 999, other.address(), 2, stream.handle()).sentence(),
                   "CUDA could not copy 2 bytes: CUDA_ERROR_INVALID_VALUE"));
}

TEST_CASE("memory that a device has not is a sentence with bytes and device", "[memory]") {
    FakeDriver driver("memory_mb 1");
    const Context context = driver.context(1);
    const Status failure = DeviceMemory::allocate(context, size_t(2) << 20).take_status();
    CHECK_ERROR(failure, "cuda.resources");
    CHECK(contains(failure.sentence(), "allocate 2097152 bytes on device 1: CUDA_ERROR_OUT_OF_MEMORY (2)"));
    // Freed memory can be allocated again.
    for (int i = 0; i < 3; ++i) (void)take(DeviceMemory::allocate(context, 700'000));
}

TEST_CASE("device memory is exported as a dma-buf, over PCIe where the driver has that choice", "[memory]") {
    const auto calls = [] { return fake::calls("cuMemGetHandleForAddressRange"); };
    const auto bytes_of = [](const DmaBuf& buffer) {
        struct stat state {};
        return fstat(buffer.fd.number(), &state) == 0 ? size_t(state.st_size) : 0;
    };
    {
        FakeDriver driver("attribute * 124 1");
        const Context context = driver.context(1);
        const DeviceMemory plain = take(DeviceMemory::allocate(context, 10'000));
        const VmmMemory vmm = take(VmmMemory::allocate(context, 10'000));
        for (const bool pcie : {false, true}) {
            const DmaBuf one = take(export_dma_buf(context, plain.address(), plain.bytes(), pcie));
            CHECK(bytes_of(one) >= 10'000);
            CHECK(one.offset == 0);
            CHECK(bytes_of(take(export_dma_buf(context, vmm.address(), vmm.bytes(), pcie))) >= vmm.bytes());
        }
        CHECK(take(export_dma_buf(context, plain.address() + 100, 1'000, false)).offset == 100);
        CHECK(calls() == 5);
        CHECK_ERROR(export_dma_buf(context, plain.address(), 1 << 20, true), "cuda.call");
        // Host memory is none.
        const PinnedMemory pinned = take(PinnedMemory::allocate(context, 4096));
        CHECK_ERROR(export_dma_buf(context, pinned.address(), 4096, true), "cuda.call");
    }
    for (const auto& [machine, wanted] :
         {std::pair("attribute * 124 1; version 12070", 1),
          std::pair("attribute * 124 1; fault cuMemGetHandleForAddressRange 1 801", 2)}) {
        INFO(machine);
        FakeDriver driver(machine);
        const Context context = driver.context(0);
        const DeviceMemory plain = take(DeviceMemory::allocate(context, 4096));
        CHECK(bytes_of(take(export_dma_buf(context, plain.address(), plain.bytes(), true))) >= 4096);
        CHECK(calls() == wanted);
    }
    for (const char* machine : {"", "attribute * 124 1; version 11060"}) {
        INFO(machine);
        FakeDriver driver(machine);
        const Context context = driver.context(0);
        const DeviceMemory plain = take(DeviceMemory::allocate(context, 4096));
        CHECK_ERROR(export_dma_buf(context, plain.address(), plain.bytes(), true), "cuda.driver");
        CHECK(calls() == 0);
    }
}

TEST_CASE("each kind of memory is recognised", "[memory]") {
    FakeDriver driver;
    const Context context = driver.context(1);
    const ContextScope scope(context);

    const DeviceMemory device = take(DeviceMemory::allocate(context, 5000));
    PointerFacts facts = facts_of(driver, static_cast<char*>(device.data()) + 100);
    CHECK(facts.kind == MemoryKind::device);
    CHECK(facts.device == 1);
    CHECK(facts.base == device.address());
    CHECK(facts.bytes == 5000);
    CHECK(facts.ipc);
    CHECK(!facts.fd);
    CHECK(facts.on_device());

    const PinnedMemory pinned = take(PinnedMemory::allocate(context, 300));
    facts = facts_of(driver, pinned.data());
    CHECK(facts.kind == MemoryKind::pinned);
    CHECK(!facts.ipc);
    CHECK(!facts.on_device());

    const VmmMemory vmm = take(VmmMemory::allocate(context, 10));
    facts = facts_of(driver, static_cast<char*>(vmm.data()) + 4096);
    CHECK(facts.kind == MemoryKind::vmm);
    CHECK(facts.device == 1);
    CHECK(facts.fd);
    CHECK(!facts.ipc);

    CUdeviceptr managed = 0, pool = 0;
    REQUIRE(fake_function<PFN_cuMemAllocManaged_v6000>("cuMemAllocManaged")(&managed, 64, CU_MEM_ATTACH_GLOBAL) == 0);
    CHECK(facts_of(driver, reinterpret_cast<void*>(managed)).kind == MemoryKind::managed);
    REQUIRE(driver->MemFree(managed) == CUDA_SUCCESS);
    REQUIRE(fake_function<PFN_cuMemAllocAsync_v11020>("cuMemAllocAsync")(&pool, 64, nullptr) == 0);
    facts = facts_of(driver, reinterpret_cast<void*>(pool));
    CHECK(facts.kind == MemoryKind::pool);
    CHECK(!facts.ipc);
    CHECK(!export_ipc(*driver, pool));
    REQUIRE(fake_function<PFN_cuMemFreeAsync_v11020>("cuMemFreeAsync")(pool, nullptr) == 0);
    demand(context.synchronize());

    int local = 0;
    CHECK(facts_of(driver, &local).kind == MemoryKind::unknown);
    CHECK(facts_of(driver, &local).bytes == 0);
    CHECK(facts_of(driver, nullptr).kind == MemoryKind::unknown);
    for (MemoryKind kind : {MemoryKind::unknown, MemoryKind::pinned, MemoryKind::device, MemoryKind::managed,
                            MemoryKind::vmm, MemoryKind::pool})
        CHECK(contains(name_of(kind), "memory"));
}

TEST_CASE("freed memory is unknown, and its address's next owner has another number", "[memory]") {
    FakeDriver driver;
    const Context context = driver.context();
    const ContextScope scope(context);
    void* address = nullptr;
    uint64_t number = 0;
    {
        const DeviceMemory memory = take(DeviceMemory::allocate(context, 64));
        address = memory.data();
        number = facts_of(driver, address).buffer_id;
    }
    CHECK(facts_of(driver, address).kind == MemoryKind::unknown);
    const DeviceMemory next = take(DeviceMemory::allocate(context, 64));
    CHECK(facts_of(driver, next.data()).buffer_id != number);
}

TEST_CASE("another owner's memory is pinned while its owner lives, and not twice", "[memory]") {
    FakeDriver driver;
    const Context context = driver.context();
    const ContextScope scope(context);
    void* data = mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(data != MAP_FAILED);
    {
        PinnedMemory pinned = take(PinnedMemory::pin(context, data, 8192));
        CHECK(pinned.address() == reinterpret_cast<CUdeviceptr>(data));
        CHECK(facts_of(driver, static_cast<char*>(data) + 5000).kind == MemoryKind::pinned);
        CHECK(contains(PinnedMemory::pin(context, data, 4096).status().sentence(), "HOST_MEMORY_ALREADY_REGISTERED"));
        PinnedMemory moved = std::move(pinned);
        CHECK(moved.bytes() == 8192);
    }
    CHECK(facts_of(driver, data).kind == MemoryKind::unknown);
    munmap(data, 8192);
}

TEST_CASE("VMM memory comes in whole pages of the device", "[vmm]") {
    FakeDriver driver;
    const Context context = driver.context();
    CHECK(take(vmm_granularity(*driver, 0)) == size_t(2) << 20);
    const VmmMemory memory = take(VmmMemory::allocate(context, (size_t(2) << 20) + 1, {1}));
    CHECK(memory.bytes() == size_t(4) << 20);
    CHECK(memory.address() % (size_t(2) << 20) == 0);
    word_at(memory.address() + memory.bytes() - 8) = 5;
    CHECK(word_at(memory.address() + memory.bytes() - 8) == 5);
}

TEST_CASE("VMM memory is refused where the device, or the peer, cannot", "[vmm]") {
    FakeDriver driver("p2p 1 0 0; attribute 1 102 0");
    const Context zero = driver.context(0), one = driver.context(1);
    CHECK(contains(VmmMemory::allocate(zero, 1, {1}).status().sentence(),
                   "open memory for device 0 and its peers: CUDA_ERROR_PEER_ACCESS_UNSUPPORTED"));
    CHECK(contains(VmmMemory::allocate(one, 1).status().sentence(), "CUDA_ERROR_NOT_SUPPORTED"));
}

TEST_CASE("only the device that was let in copies from VMM memory", "[vmm]") {
    FakeDriver driver;
    const Context zero = driver.context(0), one = driver.context(1);
    const VmmMemory shut = take(VmmMemory::allocate(zero, 1)), open = take(VmmMemory::allocate(zero, 1, {1}));
    const DeviceMemory target = take(DeviceMemory::allocate(one, 64));
    const Stream stream = take(Stream::create(one));
    const ContextScope scope(one);
    CHECK(!copy_async(*driver, target.address(), shut.address(), 64, stream.handle()));
    demand(copy_async(*driver, target.address(), open.address(), 64, stream.handle()));
    demand(stream.synchronize());
}

TEST_CASE("another process maps cuMemAlloc memory at its offset, once for all its buffers", "[ipc]") {
    FakeDriver driver;
    const Context context = driver.context();
    const ContextScope scope(context);
    const DeviceMemory memory = take(DeviceMemory::allocate(context, 8192));
    const CUdeviceptr word = memory.address() + 4104;
    word_at(word) = 12345;
    const IpcExport source = take(export_ipc(*driver, word));
    CHECK(source.offset == 4104);
    const std::string said = peer({"ipc", to_hex(&source.handle, sizeof source.handle), "4104"});
    CHECK(said == "same address\nread 12345\n");
    CHECK(word_at(word) == 77);
    // In the process itself it is refused, as by the real driver.
    CHECK(contains(IpcMapping::open(context, source).status().sentence(), "CUDA_ERROR_INVALID_CONTEXT (201)"));
}

TEST_CASE("a handle of memory that was freed opens nothing", "[ipc]") {
    FakeDriver driver;
    const Context context = driver.context();
    const ContextScope scope(context);
    IpcExport source;
    {
        const DeviceMemory memory = take(DeviceMemory::allocate(context, 64));
        source = take(export_ipc(*driver, memory.address()));
    }
    CHECK(contains(peer({"ipc", to_hex(&source.handle, sizeof source.handle), "0"}), "CUDA_ERROR_INVALID_VALUE"));
    CHECK(!export_ipc(*driver, 4096));
}

TEST_CASE("the pieces of a buffer in VMM memory are found, the first and last one whole", "[vmm]") {
    FakeDriver driver;
    const Context context = driver.context();
    const ContextScope scope(context);
    const size_t page = take(vmm_granularity(*driver, 0));
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    // Side by side in a range with a hole behind.
    const std::vector<size_t> sizes{1, 5, 1, 40, 3};
    CUdeviceptr base = 0;
    REQUIRE(driver->MemAddressReserve(&base, 60 * page, 0, 0, 0) == CUDA_SUCCESS);
    std::vector<VmmPiece> all;
    CUdeviceptr end = base;
    for (const size_t size : sizes) {
        CUmemGenericAllocationHandle handle = 0;
        REQUIRE(driver->MemCreate(&handle, size * page, &properties, 0) == CUDA_SUCCESS);
        REQUIRE(driver->MemMap(end, size * page, 0, handle, 0) == CUDA_SUCCESS);
        REQUIRE(driver->MemRelease(handle) == CUDA_SUCCESS);
        all.push_back({end, size * page});
        end += size * page;
    }
    for (size_t first = 0; first < all.size(); ++first)
        for (size_t last = first; last < all.size(); ++last)
            for (const size_t inside : {size_t(0), page - 1}) {
                const CUdeviceptr begin = all[first].address + inside, behind = all[last].address + inside + 1;
                const auto pieces = take(vmm_pieces(*driver, begin, behind - begin, last - first + 1));
                REQUIRE(pieces.size() == last - first + 1);
                for (size_t i = 0; i < pieces.size(); ++i) {
                    CHECK(pieces[i].address == all[first + i].address);
                    CHECK(pieces[i].bytes == all[first + i].bytes);
                }
            }
    CHECK_ERROR(vmm_pieces(*driver, base, end - base, 4), "gpu.registrations");
    const Status hole = vmm_pieces(*driver, base, end - base + 1, 6).take_status();
    CHECK_ERROR(hole, "memory.bounds");
    CHECK(contains(hole.sentence(), "104857600 bytes"));
    CHECK(!vmm_pieces(*driver, end, 1, 1));
    const DeviceMemory other = take(DeviceMemory::allocate(context, 64));
    CHECK(!vmm_pieces(*driver, other.address(), 1, 1));
    // Opened for a device only if each piece is.
    const auto let = [&](const VmmPiece& piece, int device) {
        const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        REQUIRE(driver->MemSetAccess(piece.address, piece.bytes, &access, 1) == CUDA_SUCCESS);
    };
    for (const VmmPiece& piece : all) {
        CHECK(!take(vmm_opened(*driver, all, 0)));
        let(piece, 0);
    }
    CHECK(take(vmm_opened(*driver, all, 0)));
    CHECK(!take(vmm_opened(*driver, all, 1)));
    // Not made to be exported.
    CHECK(contains(export_piece(*driver, base).status().sentence(), "requestedHandleTypes"));
    for (const VmmPiece& piece : all) REQUIRE(driver->MemUnmap(piece.address, piece.bytes) == CUDA_SUCCESS);
    REQUIRE(driver->MemAddressFree(base, 60 * page) == CUDA_SUCCESS);
}

#if !WEFT_TEST_TSAN  // which ends a program that forks and goes on
TEST_CASE("a child keeps no descriptor of VMM memory that its parent has just exported", "[vmm]") {
    FakeDriver driver;
    const Context context = driver.context();
    const VmmMemory memory = take(VmmMemory::allocate(context, 100));
    const UnsharedFd exported = take(export_piece(*driver, memory.address()));
    const pid_t child = fork();
    if (child == 0) _exit(fcntl(exported.number(), F_GETFD) < 0 ? 0 : 1);
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    CHECK(fcntl(exported.number(), F_GETFD) == FD_CLOEXEC);
}
#endif

TEST_CASE("another process maps VMM memory by a descriptor, found by any address in it", "[vmm]") {
    FakeDriver driver;
    const Context context = driver.context();
    const VmmMemory memory = take(VmmMemory::allocate(context, 100));
    word_at(memory.address()) = 4711;
    const auto pass = [&](const UnsharedFd& fd, int device, const std::string& setting = "") {
        const int inherited = fcntl(fd.number(), F_DUPFD, 50);
        const std::string said =
            peer({"vmm", std::to_string(device), std::to_string(inherited), std::to_string(memory.bytes())}, setting);
        close(inherited);
        return said;
    };
    CHECK(pass(take(export_piece(*driver, memory.address())), 1) == "read 4711\n");
    CHECK(word_at(memory.address()) == 78);
    CHECK(pass(take(export_piece(*driver, memory.address() + 5000)), 0) == "read 78\n");
    CHECK(contains(pass(UnsharedFd(Fd(open("/dev/null", O_RDWR | O_CLOEXEC))), 0),
                   "import another process's device memory"));
    // A machine whose P2P is said to work, and does not.
    word_at(memory.address()) = 9;
    CHECK(pass(take(export_piece(*driver, memory.address())), 1, "p2p 1 0 lies") == "read 9\n");
    CHECK(word_at(memory.address()) == 9);
    const DeviceMemory other = take(DeviceMemory::allocate(context, 64));
    CHECK(contains(export_piece(*driver, other.address()).status().sentence(), "find the piece of memory"));
}
