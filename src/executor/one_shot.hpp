// one_shot.hpp: one-shot all-reduce: each rank stages its whole input and reduces the inputs of all, with one wait per tile.
#pragma once
#include "src/executor/shared_memory_run.hpp"

namespace weft::internal {

class OneShot final : public SharedMemoryRun {
  public:
    explicit OneShot(const Plan& plan) : SharedMemoryRun(plan) {}
    void start(const void* send, void* receive, const void* operand, uint64_t sequence) override;
    Progress advance() override;

  private:
    bool posted_ = false;  // the tile's arrival
};

}  // namespace weft::internal
