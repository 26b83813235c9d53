// replica.hpp: weft.train.Replica.
#pragma once
#include <nanobind/nanobind.h>
#include <weft/train.h>

#include <string>

#include "python/binding/communicator.hpp"

namespace weft::python {

// Owns a weftTrainReplica_t, which outlives communicators. Needs the GIL.
class Replica {
  public:
    Replica(int jump, int copies);
    Replica(const Replica&) = delete;
    ~Replica();

    // boxes and items as for Checkpoint.
    void save(Comm& comm, uint64_t version, const nb::list& boxes, const nb::list& items) const;
    uint64_t load(Comm& comm, const nb::list& boxes) const;
    nb::bytes item(const std::string& name, bool per_rank) const;
    void close();

  private:
    weftTrainReplica_t handle() const;

    weftTrainReplica_t handle_ = nullptr;
    int process_;
};

void bind_replica(nb::module_& module);

}  // namespace weft::python
