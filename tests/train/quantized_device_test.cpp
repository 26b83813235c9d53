// Quantised messages of sharded models on devices, on the fake driver, in one hop and in two: bit for bit as in host memory.
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "src/base/datatype.hpp"
#include "src/train/sharding/sharded.hpp"
#include "tests/train/both_memories.hpp"

using namespace weft::internal;
using namespace weft::internal::test;
using namespace weft::internal::train;

namespace {

constexpr TensorFacts unit_tensors[] = {{weftFloat32, 901, 0}, {weftBfloat16, 64, 0}};

// Float32, or the upper half of it: bfloat16.
std::string noise(const TensorFacts& facts, uint32_t number) {
    std::string bytes;
    for (size_t i = 0; i < facts.count; ++i) {
        number = number * 1664525u + 1013904223u;
        const float value = float(int32_t(number)) * 0x1p-31f;
        const auto* const from = reinterpret_cast<const char*>(&value);
        const size_t size = size_of(facts.type);
        bytes.append(from + sizeof value - size, size);
    }
    return bytes;
}

// A rank's work in one kind of memory; its stream is that of a space of its own.
class QuantizedWork {
  public:
    QuantizedWork(weftComm_t comm, int rank, bool on_device, const std::vector<int>& hosts)
        : rank_(rank), caller_(space_of_rank(rank, on_device)) {
        ShardingPlan plan;
        plan.on_device = on_device;
        plan.quantization = {8, 4, 16};
        plan.hosts = hosts;
        plan.units.push_back({"unit", {}});
        for (const TensorFacts& facts : unit_tensors) {
            values_.push_back(noise(facts, 7));
            plan.units[0].parameters.push_back({size_of(facts.type) == 4 ? "a" : "b", values_.back().data(), facts});
        }
        sharded_ = need(Sharded::make(ok(), plan, space_of_rank(rank, on_device), comm));
    }
    // The bytes of the gathered unit, and of this rank's reduced gradients.
    std::string run() {
        std::string seen;
        need(sharded_->gather(0, caller_->stream()));
        for (int p = 0; p < int(std::size(unit_tensors)); ++p) {
            const std::string gradient = noise(unit_tensors[p], uint32_t(100 * p + rank_));
            seen += read(need(sharded_->parameter(p)), gradient.size());
            need(caller_->copy(need(sharded_->gradient(p)), gradient.data(), gradient.size()));
            need(caller_->synchronize());
        }
        need(sharded_->release(0, false, caller_->stream()));
        need(sharded_->reduce_scatter(0, true, caller_->stream()));
        need(sharded_->finish(caller_->stream()));
        for (int p = 0; p < int(std::size(unit_tensors)); ++p) {
            const ParameterShard shard = sharded_->shard(p);
            seen += read(shard.gradient, shard.count * size_of(unit_tensors[p].type));
        }
        return seen;
    }

  private:
    std::string read(const void* memory, size_t bytes) {
        std::string seen(bytes, '\0');
        need(caller_->copy(seen.data(), memory, bytes));
        need(caller_->synchronize());
        return seen;
    }

    int rank_;
    std::unique_ptr<MemorySpace> caller_;
    std::vector<std::string> values_;
    std::shared_ptr<Sharded> sharded_;
};

std::string compared(weftComm_t comm, int rank, const std::vector<int>& hosts) try {
    const std::string host = QuantizedWork(comm, rank, false, hosts).run();
    const std::string device = QuantizedWork(comm, rank, true, hosts).run();
    if (host.find_first_not_of('\0') == host.npos) return "all bytes are 0";
    return host == device ? "" : "a device gives other bits";
} catch (const std::exception& exception) {
    return exception.what();
}

}  // namespace

TEST_CASE("quantised messages on devices have the bits of the host, in one hop and in two") {
    const std::vector<int> forms[] = {{}, {0, 0, 1, 1}};
    for (const std::vector<int>& hosts : forms) {
        CAPTURE(hosts.size());
        const auto wrong = on_threads(
            4, nullptr, [&](weftComm_t comm, int rank) { return compared(comm, rank, hosts); }, fake_devices);
        CHECK(wrong == std::vector<std::string>(4));
    }
}
