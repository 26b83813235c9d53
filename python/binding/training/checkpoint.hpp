// checkpoint.hpp: weft.train.Checkpoint.
#pragma once
#include <nanobind/nanobind.h>
#include <weft/train.h>

#include <atomic>
#include <string>
#include <vector>

#include "python/binding/array.hpp"
#include "python/binding/communicator.hpp"

namespace weft::python {

// Owns a weftTrainCheckpoint_t. Needs the GIL, except abort_quietly().
class Checkpoint final : public Interruptible {
  public:
    explicit Checkpoint(nb::object comm);
    Checkpoint(const Checkpoint&) = delete;
    ~Checkpoint();

    // boxes: (name, array, extents, shape, offsets). items: (name, memory, whether each rank has its own).
    void save(const std::string& folder, const nb::list& boxes, const nb::list& items, bool background);
    void load(const std::string& folder, const nb::list& boxes);
    bool test();
    void wait();
    int ranks();
    nb::bytes item(const std::string& name, int rank);
    void export_file(const std::string& folder, const std::string& file, const std::string& prefix);
    void abort();
    void abort_quietly() noexcept override;
    void close();
    int visit(visitproc visit, void* arg) const;

  private:
    weftTrainCheckpoint_t handle() const;
    // Runs a call that may block.
    template <class Body>
    void run(Body&& body);

    nb::object comm_;
    std::atomic<weftTrainCheckpoint_t> handle_{nullptr};
    int process_;
};

void bind_checkpoint(nb::module_& module);

}  // namespace weft::python
