// bucket.hpp: weft.train.Bucket, which the hook of a Ddp gets.
#pragma once
#include <nanobind/nanobind.h>
#include <weft/train.h>

#include <string>
#include <utility>
#include <vector>

namespace nb = nanobind;

namespace weft::python {

class Compressor;

// A bucket during its hook. Afterwards every use raises an exception. Needs the GIL.
class Bucket {
  public:
    // owner: the Ddp.
    Bucket(const weftTrainBucket_t* bucket, nb::object owner) : bucket_(bucket), owner_(std::move(owner)) {}

    const weftTrainBucket_t& get() const;
    // The gradients' memory.
    nb::object memory() const;
    // The address of the CUDA stream for all work on the memory, or None in host memory.
    nb::object stream() const;
    std::vector<int> parameters() const { return {get().parameters, get().parameters + get().parameterCount}; }
    std::vector<size_t> offsets() const { return {get().offsets, get().offsets + get().parameterCount}; }
    // Built-in hooks, on all of the bucket.
    void average(const std::string& sent_as) const;
    void compress(const Compressor& compressor) const;
    // A memoryview that is released at the end of the hook, or bytes on the device.
    nb::object scratch(size_t bytes);
    // Ends the hook. False if an array still uses scratch memory.
    bool end();

  private:
    nb::object memory_of(void* data, size_t bytes) const;

    const weftTrainBucket_t* bucket_;
    nb::object owner_;
    // Scratch memory, and its memoryview; on a device there is none.
    std::vector<std::pair<nb::object, nb::object>> views_;
};

void bind_bucket(nb::module_& module);

}  // namespace weft::python
