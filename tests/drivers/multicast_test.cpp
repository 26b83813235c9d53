// multicast_test.cpp: multicast objects: their steps in order and out of order, each call's failure, and sums and
// stores by the fake driver's switch.
#include "src/drivers/cuda/multicast.hpp"

#include <cstring>
#include <vector>

#include "src/gpu/kernels/multicast/multimem.hpp"
#include "tests/drivers/fake.hpp"

using namespace weft::internal;
using namespace weft::internal::test;
using namespace weft::internal::cuda;

namespace {

constexpr const char* with_switch = "gpus 3; attribute * 132 1";
constexpr size_t page = size_t(2) << 20;

// Three devices' parts in one object of two pages.
struct Parts {
    explicit Parts(const FakeDriver& driver) {
        for (int device = 0; device < 3; ++device) contexts.push_back(driver.context(device));
    }
    // The first failure; ok if all parts are mapped.
    Status make() {
        auto bytes = MulticastObject::size_for(contexts[0].driver(), 3, page + 1);
        if (!bytes) return bytes.take_status();
        CHECK(*bytes == 2 * page);
        auto first = MulticastObject::create(contexts[0], 3, *bytes);
        if (!first) return first.take_status();
        objects.push_back(std::move(*first));
        auto descriptor = objects[0].export_descriptor();
        if (!descriptor) return descriptor.take_status();
        for (size_t device = 1; device < 3; ++device) {
            auto object = MulticastObject::import(contexts[device], *descriptor, *bytes);
            if (!object) return object.take_status();
            objects.push_back(std::move(*object));
        }
        for (MulticastObject& object : objects) WEFT_TRY(object.add_device());
        for (size_t device = 0; device < 3; ++device) {
            auto own = VmmMemory::allocate(contexts[device], *bytes);
            if (!own) return own.take_status();
            memory.push_back(std::move(*own));
            WEFT_TRY(objects[device].bind(memory.back()));
        }
        for (MulticastObject& object : objects) WEFT_TRY(object.map());
        return ok();
    }
    float* floats(size_t device) const { return static_cast<float*>(memory[device].data()); }
    std::byte* address(size_t device) const { return reinterpret_cast<std::byte*>(objects[device].address()); }

    std::vector<Context> contexts;
    std::vector<VmmMemory> memory;
    std::vector<MulticastObject> objects;  // destroyed first
};

}  // namespace

TEST_CASE("a load from a multicast object adds up the memory of all devices, and a store writes all", "[multicast]") {
    const FakeDriver driver(with_switch);
    Parts parts(driver);
    demand(parts.make());
    const size_t far = page / 4 + 8;  // in the second page
    for (size_t device = 0; device < 3; ++device)
        for (size_t i = 0; i < 4; ++i) parts.floats(device)[far + i] = float(10 * i + device);
    for (size_t device = 0; device < 3; ++device) {
        const Pack<16> sums = multimem_reduce<weftFloat32, weftSum>(parts.address(device) + far * 4);
        float values[4];
        memcpy(values, sums.words, sizeof values);
        for (size_t i = 0; i < 4; ++i) CHECK(values[i] == float(30 * i + 3));
    }
    multimem_store(parts.address(2), Pack<16>{{7, 8, 9, 10}});
    for (size_t device = 0; device < 3; ++device) {
        const uint32_t right[] = {7, 8, 9, 10};
        CHECK(memcmp(parts.memory[device].data(), right, sizeof right) == 0);
    }
}

TEST_CASE("sums of 16-bit floats in a multicast object are rounded once", "[multicast]") {
    const FakeDriver driver(with_switch);
    Parts parts(driver);
    demand(parts.make());
    // 2048 + 1 + 1 is 2050 in half, and (2048 + 1) + 1 with two roundings is 2048.
    const uint16_t halves[] = {0x6800, 0x3c00, 0x3c00};
    for (size_t device = 0; device < 3; ++device) memcpy(parts.memory[device].data(), &halves[device], 2);
    CHECK((multimem_reduce<weftFloat16, weftSum>(parts.address(1)).words[0] & 0xffff) == 0x6801);
}

TEST_CASE("fp8 is added up as fp16, and integers have signs in the least and the greatest", "[multicast]") {
    const FakeDriver driver(with_switch);
    Parts parts(driver);
    demand(parts.make());
    // 57344 twice is infinity in half; the sum in float would saturate at 57344.
    const uint32_t words[] = {0x0000007b, 0x8000007b, 0x00000000};
    for (size_t device = 0; device < 3; ++device) memcpy(parts.memory[device].data(), &words[device], 4);
    const std::byte* const at = parts.address(1);
    CHECK((multimem_reduce<weftFloat8e5m2, weftSum>(at).words[0] & 0xff) == 0x7c);
    CHECK(multimem_reduce<weftInt32, weftMax>(at).words[0] == 0x0000007b);
    CHECK(multimem_reduce<weftInt32, weftMin>(at).words[0] == 0x8000007b);
    CHECK(multimem_reduce<weftUint32, weftMax>(at).words[0] == 0x8000007b);
    CHECK(multimem_reduce<weftUint32, weftMin>(at).words[0] == 0);
    CHECK(multimem_reduce<weftUint32, weftSum>(at).words[0] == 0x800000f6);
    CHECK(multimem_reduce<weftInt64, weftBxor>(at).words[0] == 0x80000000);
}

TEST_CASE("an object keeps a piece that it has bound until it ends, also if the piece is freed", "[multicast]") {
    const FakeDriver driver("gpus 1; attribute * 132 1; multicast 1");
    const Context context = driver.context();
    const auto kept = [] { return contains(fake::leaks(), "a handle of 2097152 bytes\na handle of 2097152 bytes"); };
    {
        VmmMemory memory = take(VmmMemory::allocate(context, page));
        MulticastObject object = take(MulticastObject::create(context, 1, page));
        demand(object.add_device());
        demand(object.bind_piece(memory.address()));
        demand(object.map());
        memory = {};
        CHECK(kept());  // the object's and the memory's
    }
    CHECK_FALSE(contains(fake::leaks(), "a handle"));
}

TEST_CASE("each failing call is an error, and all that was made is given back", "[multicast]") {
    const struct {
        const char *function, *text;
        int calls;
    } cases[] = {{"cuMulticastGetGranularity", "query the granularity of multicast objects for 3 devices", 1},
                 {"cuMulticastCreate", "create a multicast object of 4194304 bytes for 3 devices (does the fabric", 1},
                 {"cuMemExportToShareableHandle", "export the multicast object as a file descriptor", 1},
                 {"cuMemImportFromShareableHandle", "import another rank's multicast object", 2},
                 {"cuMulticastAddDevice", "to the multicast object", 3},
                 {"cuMulticastBindMem", "bind 4194304 bytes of device", 3},
                 {"cuMemAddressReserve", "reserve 4194304 bytes of addresses", 6},
                 {"cuMemMap", "map 4194304 bytes", 6},
                 {"cuMemSetAccess", "open", 6}};
    for (const auto& each : cases)
        for (int call = 1; call <= each.calls; ++call) {
            INFO(each.function << ", call " << call);
            const FakeDriver driver(std::string(with_switch) + "; fault " + each.function + " " + std::to_string(call) +
                                    " 802");
            Parts parts(driver);
            const Status failure = parts.make();
            CHECK_ERROR(failure, "cuda.call");
            CHECK(contains(failure.sentence(), each.text));
            CHECK(contains(failure.sentence(), "CUDA_ERROR_SYSTEM_NOT_READY"));
        }
}

TEST_CASE("steps of a multicast object out of order are refused", "[multicast]") {
    const FakeDriver driver(with_switch);
    Parts parts(driver);
    CHECK_ERROR(MulticastObject::create(parts.contexts[0], 1, page), "cuda.call");
    CHECK_ERROR(MulticastObject::create(parts.contexts[0], 2, page + 4096), "cuda.call");
    MulticastObject object = take(MulticastObject::create(parts.contexts[0], 2, page));
    MulticastObject other = take(MulticastObject::import(parts.contexts[1], take(object.export_descriptor()), page));
    const VmmMemory memory = take(VmmMemory::allocate(parts.contexts[0], page)),
                    third = take(VmmMemory::allocate(parts.contexts[2], page));
    demand(object.add_device());
    CHECK(contains(object.add_device().sentence(), "add device 0 to the multicast object: CUDA_ERROR_INVALID_VALUE"));
    // Before all devices are there.
    CHECK_ERROR(object.bind(memory), "cuda.call");
    CHECK_ERROR(object.map(), "cuda.call");
    demand(other.add_device());
    // Memory of a device that is not in it.
    CHECK_ERROR(object.bind(third), "cuda.call");
    demand(object.bind(memory));
    CHECK_ERROR(object.bind(memory), "cuda.call");
}

TEST_CASE("a device without multicast cannot be added, and an older driver has no objects", "[multicast]") {
    {
        const FakeDriver driver("gpus 3; attribute 0 132 1");
        Parts parts(driver);
        const Status failure = parts.make();
        CHECK(contains(failure.sentence(), "add device 1 to the multicast object: CUDA_ERROR_NOT_SUPPORTED"));
    }
    const FakeDriver old("gpus 3; version 12000");
    CHECK(!MulticastObject::has_functions(*old));
    CHECK_ERROR(MulticastObject::size_for(*old, 3, page), "cuda.driver");
}
