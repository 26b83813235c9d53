// dlpack.hpp: the part of DLPack's binary interface that array.cpp reads, versions 0.x and 1.x.
// Source: github.com/dmlc/dlpack, include/dlpack/dlpack.h.
#pragma once
#include <cstdint>

namespace weft::python::dlpack {

enum DeviceType : int32_t { cpu = 1, cuda = 2, cuda_host = 3, cuda_managed = 13 };
enum TypeCode : uint8_t {
    signed_integer = 0,
    unsigned_integer = 1,
    floating = 2,
    bfloat = 4,
    boolean = 6,
    float8_e4m3fn = 10,
    float8_e5m2 = 12
};
constexpr uint64_t read_only = 1, is_copied = 2;  // VersionedTensor::flags

struct Device {
    DeviceType type;
    int32_t index;
};

struct Tensor {
    void* data;
    Device device;
    int32_t dimensions;
    struct {
        uint8_t code;
        uint8_t bits;
        uint16_t lanes;
    } type;
    int64_t* shape;
    int64_t* strides;  // in elements; null: C order
    uint64_t byte_offset;
};

// The content of a capsule "dltensor".
struct ManagedTensor {
    Tensor tensor;
    void* context;
    void (*deleter)(ManagedTensor*);
};

// The content of a capsule "dltensor_versioned".
struct VersionedTensor {
    struct {
        uint32_t major;
        uint32_t minor;
    } version;
    void* context;
    void (*deleter)(VersionedTensor*);
    uint64_t flags;
    Tensor tensor;
};

}  // namespace weft::python::dlpack
