// array.hpp: the memory of a Python object: an array of numpy, torch, cupy or jax, a bytearray, a memoryview.
// It is found by the buffer protocol, __array_interface__, DLPack or __cuda_array_interface__, without a copy.
#pragma once
#include <nanobind/nanobind.h>
#include <weft/weft.h>

#include <cstddef>
#include <string>
#include <vector>

namespace nb = nanobind;

namespace weft::python {

namespace dlpack {
struct ManagedTensor;
struct VersionedTensor;
}  // namespace dlpack

enum class Access { read, write };

// Holds the object's memory until it is destroyed. Move-only. Every function needs the GIL.
class Array {
  public:
    // No memory: NULL and no elements.
    Array() = default;
    // Raises an exception that names the argument and its dtype, strides, device or read-only memory if no call of Weft
    // can take it.
    Array(nb::handle object, const char* name, Access access);
    // Keeps any object alive in place of memory.
    static Array keeping(nb::object object);
    Array(Array&& other) noexcept;
    Array& operator=(Array&& other) noexcept;
    ~Array() { release(); }

    void* data() const { return data_; }
    size_t count() const { return count_; }
    size_t bytes() const { return count_ * item_bytes_; }
    weftDataType_t type() const { return type_; }
    // The elements are boolean: calls carry them as uint8.
    bool is_boolean() const { return boolean_; }
    bool on_device() const { return device_ >= 0; }
    int device() const { return device_; }
    // For Python's garbage collector. The memory of a DLPack capsule is not visible to it.
    int visit(visitproc visit, void* arg) const;
    // As "float32 on cuda:0".
    std::string text() const;

  private:
    bool from_buffer(nb::handle object, const char* name, Access access);
    bool from_interface(nb::handle object, const char* attribute, const char* name, Access access);
    bool from_dlpack(nb::handle object, const char* name, Access access);
    void set_type(nb::handle object, const char* name, char kind, size_t item_bytes, const std::string& shown);
    void release() noexcept;

    void* data_ = nullptr;
    size_t count_ = 0;
    size_t item_bytes_ = 1;
    weftDataType_t type_ = weftUint8;
    bool boolean_ = false;
    int device_ = -1;
    // At most one of these holds the memory.
    Py_buffer buffer_ = {};
    dlpack::ManagedTensor* managed_ = nullptr;
    dlpack::VersionedTensor* versioned_ = nullptr;
    nb::object object_;
};

// A leaf of torch's autograd, such as torch.nn.Parameter, as a tensor that exports its memory; else the object itself.
nb::object without_autograd(nb::handle object);

// Raises an exception unless both arrays have one dtype and lie on one device.
void check_alike(const Array& left, const char* left_name, const Array& right, const char* right_name);
// Raises an exception unless the array has `count` elements.
void check_count(const Array& array, const char* name, size_t count, const char* because);

const char* name_of(weftDataType_t type);
size_t bytes_of(weftDataType_t type);
// The type of a name as "float32" or of an object whose text ends with one, as numpy.dtype and torch.dtype.
weftDataType_t type_named(nb::handle object);

}  // namespace weft::python
