// compressor.hpp: the compressing hooks of weft.train.
#pragma once
#include <nanobind/nanobind.h>
#include <weft/train.h>

namespace nb = nanobind;

namespace weft::python {

// Owns a weftTrainCompressor_t. Needs the GIL.
class Compressor {
  public:
    explicit Compressor(const nb::dict& settings);
    Compressor(const Compressor&) = delete;
    ~Compressor();

    weftTrainCompressor_t handle() const { return handle_; }
    bool compressed() const;
    nb::bytes save() const;
    void load(const nb::bytes& state);

  private:
    weftTrainCompressor_t handle_ = nullptr;
};

void bind_compressors(nb::module_& module);

}  // namespace weft::python
