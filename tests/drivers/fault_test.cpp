// fault_test.cpp: every owner's making fails at each of its steps: a sentence, and nothing is left behind.
#include <chrono>
#include <functional>
#include <vector>

#include "src/drivers/cuda/event.hpp"
#include "src/drivers/cuda/graph.hpp"
#include "src/drivers/cuda/ipc.hpp"
#include "src/drivers/cuda/kernel.hpp"
#include "src/drivers/cuda/memory.hpp"
#include "src/drivers/cuda/pointer.hpp"
#include "src/drivers/cuda/stream.hpp"
#include "src/drivers/cuda/vmm.hpp"
#include "tests/drivers/fake.hpp"
#include "tests/fake_cuda/kernels.hpp"

using namespace weft::internal;
using namespace weft::internal::test;
using namespace weft::internal::cuda;

namespace {

void nothing(FakeBlock&) {}

// One thing that is made, used and given back, and the functions that may fail on the way.
struct Case {
    const char* name;
    std::vector<const char*> functions;
    std::function<Status(const Context&)> make;
};

const std::vector<Case>& cases() {
    static const std::vector<Case> all = {
        {"stream",
         {"cuCtxPushCurrent", "cuCtxGetStreamPriorityRange", "cuStreamCreateWithPriority", "cuStreamSynchronize"},
         [](const Context& context) {
             Result<Stream> stream = Stream::create(context);
             return stream ? stream->synchronize() : stream.take_status();
         }},
        {"event",
         {"cuEventCreate", "cuEventQuery", "cuIpcGetEventHandle"},
         [](const Context& context) -> Status {
             Result<Event> event = Event::create(context, Event::EventUse::interprocess);
             if (!event) return event.take_status();
             if (Result<bool> done = event->done(); !done) return done.take_status();
             Result<CUipcEventHandle> handle = event->exported();
             return handle ? weft::internal::ok() : handle.take_status();
         }},
        {"device memory",
         {"cuMemAlloc", "cuMemGetAddressRange", "cuIpcGetMemHandle", "cuPointerGetAttributes"},
         [](const Context& context) -> Status {
             Result<DeviceMemory> memory = DeviceMemory::allocate(context, 100);
             if (!memory) return memory.take_status();
             const ContextScope scope(context.driver(), context.handle());
             if (Result<IpcExport> handle = export_ipc(context.driver(), memory->address()); !handle)
                 return handle.take_status();
             Result<PointerFacts> facts = describe_pointer(context.driver(), memory->data());
             return facts ? weft::internal::ok() : facts.take_status();
         }},
        {"pinned memory",
         {"cuMemHostAlloc", "cuMemHostGetDevicePointer"},
         [](const Context& context) { return PinnedMemory::allocate(context, 100).take_status(); }},
        {"somebody's memory, pinned",
         {"cuMemHostRegister", "cuMemHostGetDevicePointer"},
         [](const Context& context) {
             alignas(4096) static char data[4096];
             return PinnedMemory::pin(context, data, sizeof data).take_status();
         }},
        {"VMM memory",
         {"cuMemGetAllocationGranularity", "cuMemCreate", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess",
          "cuMemExportToShareableHandle", "cuMemImportFromShareableHandle", "cuMemRetainAllocationHandle",
          "cuMemGetAllocationPropertiesFromHandle", "cuMemGetAddressRange", "cuMemGetAccess"},
         [](const Context& context) -> Status {
             Result<VmmMemory> memory = VmmMemory::allocate(context, 100);
             if (!memory) return memory.take_status();
             const ContextScope scope(context);
             Result<std::vector<VmmPiece>> pieces = vmm_pieces(context.driver(), memory->address(), 100, 1);
             if (!pieces) return pieces.take_status();
             Result<bool> opened = vmm_opened(context.driver(), *pieces, context.device());
             if (!opened) return opened.take_status();
             std::vector<UnsharedFd> fds;
             for (int i = 0; i < 2; ++i) {
                 Result<UnsharedFd> fd = export_piece(context.driver(), memory->address());
                 if (!fd) return fd.take_status();
                 fds.push_back(std::move(*fd));
             }
             const std::vector<uint64_t> bytes(2, memory->bytes());
             return VmmMemory::import(context, fds, bytes).take_status();
         }},
        {"kernel",
         {"cuLibraryLoadData", "cuLibraryGetKernel", "cuKernelGetFunction", "cuKernelSetAttribute", "cuFuncLoad",
          "cuFuncGetAttribute", "cuLaunchKernelEx", "cuCtxSynchronize"},
         [](const Context& context) -> Status {
             fake_cuda_add_kernel(fake_kernel<nothing>("nothing"));
             static constexpr uint32_t code[4] = {0xBA55ED50};
             Result<Library> library = Library::load(context.driver(), code);
             if (!library) return library.take_status();
             Result<Kernel> kernel = Kernel::load(*library, context, "nothing", 64);
             if (!kernel) return kernel.take_status();
             ContextScope scope(context);
             WEFT_TRY(kernel->launch({}, nullptr, nullptr));
             return context.synchronize();
         }},
        {"graph",
         {"cuStreamBeginCapture", "cuStreamEndCapture", "cuGraphInstantiateWithFlags", "cuGraphLaunch"},
         [](const Context& context) -> Status {
             Result<Stream> stream = Stream::create(context);
             if (!stream) return stream.take_status();
             ContextScope scope(context);
             WEFT_TRY(Graph::begin(context.driver(), stream->handle()));
             Result<Graph> graph = Graph::end(context.driver(), stream->handle());
             if (!graph) {
                 // A capture whose end failed is still there.
                 CUgraph left = nullptr;
                 if (context.driver().StreamEndCapture(stream->handle(), &left) == CUDA_SUCCESS)
                     context.driver().GraphDestroy(left);
                 return graph.take_status();
             }
             WEFT_TRY(graph->launch(stream->handle()));
             return stream->synchronize();
         }},
    };
    return all;
}

}  // namespace

TEST_CASE("any failing call is an error that names it, and nothing is left behind", "[fault]") {
    for (const Case& each : cases()) {
        INFO(each.name);
        {
            FakeDriver driver;
            const Context context = driver.context();
            demand(each.make(context));
        }
        for (const char* function : each.functions) {
            INFO(function);
            FakeDriver driver;
            const Context context = driver.context();
            fake::add_setting(std::string("fault ") + function + " 1 999");
            const Status status = each.make(context);
            CHECK(contains(status.sentence(), "CUDA_ERROR_UNKNOWN (999)"));
            // It was that once only.
            demand(each.make(context));
        }
    }
}

TEST_CASE("the k-th call fails, or is slow, and no other", "[fault]") {
    FakeDriver driver("fault cuMemAlloc 3 2; fault cuEventCreate 2 sleep 30");
    const Context context = driver.context();
    std::vector<bool> worked;
    for (int i = 0; i < 5; ++i) worked.push_back(DeviceMemory::allocate(context, 64).ok());
    CHECK(worked == std::vector<bool>{true, true, false, true, true});
    CHECK(fake::calls("cuMemAlloc") == 5);
    (void)take(Event::create(context));
    const auto begin = std::chrono::steady_clock::now();
    (void)take(Event::create(context));
    CHECK(std::chrono::steady_clock::now() - begin >= std::chrono::milliseconds(30));
    fake::add_setting("fault cuMemAlloc 0 2");
    for (int i = 0; i < 3; ++i) CHECK(!DeviceMemory::allocate(context, 64));
}

TEST_CASE("a context that cannot be had is a sentence with the device", "[fault]") {
    FakeDriver driver("fault cuDevicePrimaryCtxRetain 1 46");
    CHECK(contains(Context::retain(*driver, 1).status().sentence(), "open a context on device 1"));
}
