// gpu_join.hpp: how the ranks of a communicator get support for device memory, or find the reason why not. Thread-bound
// to the rank.
#pragma once
#include <memory>
#include <vector>

#include "src/control/ended_leaders.hpp"
#include "src/gpu/engine/joined_gpu.hpp"

namespace weft::internal {

class GpuJoin {
  public:
    // `gpu` must outlive this object.
    explicit GpuJoin(JoinedGpu& gpu) : gpu_(gpu) {}

    // See GpuEngine.
    void meet(std::shared_ptr<Segment> group, const net::Identity* identity, int rank, int64_t timeout_ms,
              std::shared_ptr<const Catalog> catalog, std::shared_ptr<const Machines> machines);
    Result<bool> advance();
    // Makes the connections and the registry ready for calls.
    Status begin(int64_t timeout_ms);

  private:
    // Reads the facts of all ranks. False: device memory is not supported, or it is staged.
    bool read_facts(std::vector<DeviceFacts>& facts);
    void report_sharing(const std::vector<int>& elsewhere) const;
    // Plans with the facts of all ranks, and makes the domain.
    void plan(const std::vector<DeviceFacts>& facts, const net::Identity* identity);
    Status listen(const net::Identity& identity);
    Status check_others(const std::vector<int>& missing);

    JoinedGpu& gpu_;
    int64_t deadline_us_ = 0;  // 0: none
    int64_t next_look_us_ = 0;
    LeaderWatch leaders_;
};

}  // namespace weft::internal
