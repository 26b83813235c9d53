#include "python/binding/array.hpp"

#include <nanobind/stl/string.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "python/binding/dlpack.hpp"
#include "python/binding/failure.hpp"

namespace weft::python {

namespace {

struct TypeRow {
    const char* name;
    weftDataType_t type;
    size_t bytes;
    char kind;  // as in numpy's typestr: i, u, f; a letter of our own for types that numpy lacks
};
constexpr char kind_bfloat = 'E', kind_e4m3 = '4', kind_e5m2 = '5', kind_boolean = 'b';
constexpr std::array<TypeRow, 12> rows = {{{"int8", weftInt8, 1, 'i'},
                                           {"uint8", weftUint8, 1, 'u'},
                                           {"int32", weftInt32, 4, 'i'},
                                           {"uint32", weftUint32, 4, 'u'},
                                           {"int64", weftInt64, 8, 'i'},
                                           {"uint64", weftUint64, 8, 'u'},
                                           {"float16", weftFloat16, 2, 'f'},
                                           {"float32", weftFloat32, 4, 'f'},
                                           {"float64", weftFloat64, 8, 'f'},
                                           {"bfloat16", weftBfloat16, 2, kind_bfloat},
                                           {"float8_e4m3fn", weftFloat8e4m3, 1, kind_e4m3},
                                           {"float8_e5m2", weftFloat8e5m2, 1, kind_e5m2}}};

const TypeRow* row_of(weftDataType_t type) {
    for (const TypeRow& row : rows)
        if (row.type == type) return &row;
    return nullptr;
}

std::string text_of(nb::handle object) { return nb::cast<std::string>(nb::str(object)); }

// The object's dtype as text, or what its protocol calls it.
std::string dtype_of(nb::handle object, const std::string& shown) {
    nb::object dtype = nb::getattr(object, "dtype", nb::none());
    return dtype.is_none() ? shown : text_of(dtype);
}

std::string tuple_text(const int64_t* values, int dimensions) {
    std::string text = "(";
    for (int i = 0; i < dimensions; ++i) text += (i ? ", " : "") + std::to_string(values[i]);
    return text + (dimensions == 1 ? ",)" : ")");
}

// Strides in units of `item`, the size of an element in the strides' unit.
bool in_c_order(const int64_t* shape, const int64_t* strides, int dimensions, int64_t item) {
    int64_t expected = item;
    for (int i = dimensions; i-- > 0;) {
        if (shape[i] == 0) return true;
        if (shape[i] != 1 && strides[i] != expected) return false;
        expected *= shape[i];
    }
    return true;
}

[[noreturn]] void refuse_strides(const char* name, const std::string& strides, const std::string& shape) {
    refuse("python.strides", std::string(name) + " has strides " + strides + " for shape " + shape +
                                 ", which is not C-contiguous. Pass a contiguous copy, as numpy.ascontiguousarray or "
                                 "Tensor.contiguous make it");
}

[[noreturn]] void refuse_read_only(const char* name) {
    refuse("python.read-only",
           std::string(name) + " is read-only, but the call writes to it. Pass writable memory by out=");
}

// The kind of a type by the name of its dtype; 0 if it is none of those that numpy lacks.
char kind_of_name(const std::string& name) {
    if (name == "bfloat16") return kind_bfloat;
    if (name == "float8_e4m3fn") return kind_e4m3;
    if (name == "float8_e5m2") return kind_e5m2;
    return 0;
}

}  // namespace

const char* name_of(weftDataType_t type) {
    const TypeRow* const row = row_of(type);
    return row ? row->name : "unknown";
}

size_t bytes_of(weftDataType_t type) {
    const TypeRow* const row = row_of(type);
    return row ? row->bytes : 0;
}

weftDataType_t type_named(nb::handle object) {
    // numpy.float32 and ml_dtypes.bfloat16 are classes; their dtype has the name.
    nb::object named = nb::getattr(object, "__name__", nb::none());
    std::string text = text_of(named.is_none() ? object : named);
    if (const size_t dot = text.rfind('.'); dot != std::string::npos) text = text.substr(dot + 1);
    for (const TypeRow& row : rows)
        if (text == row.name) return row.type;
    std::string names;
    for (const TypeRow& row : rows) names += (names.empty() ? "" : ", ") + std::string(row.name);
    refuse("python.dtype", "the dtype is " + text + ", which Weft does not have. Use one of " + names);
}

// The delegation makes the destructor run if this constructor raises.
Array::Array(nb::handle object, const char* name, Access access) : Array() {
    if (from_buffer(object, name, access)) [[likely]]
        return;
    if (from_interface(object, "__array_interface__", name, access)) return;
    if (from_dlpack(object, name, access)) return;
    if (from_interface(object, "__cuda_array_interface__", name, access)) return;
    refuse("python.buffer", std::string(name) + " is of type " + Py_TYPE(object.ptr())->tp_name +
                                ", which has no memory that Weft can use. Pass an object with the buffer protocol, "
                                "__dlpack__ or __cuda_array_interface__, as arrays of numpy, torch, cupy and jax have");
}

Array Array::keeping(nb::object object) {
    Array kept;
    kept.object_ = std::move(object);
    return kept;
}

Array::Array(Array&& other) noexcept
    : data_(other.data_),
      count_(other.count_),
      item_bytes_(other.item_bytes_),
      type_(other.type_),
      boolean_(other.boolean_),
      device_(other.device_),
      buffer_(std::exchange(other.buffer_, {})),
      managed_(std::exchange(other.managed_, nullptr)),
      versioned_(std::exchange(other.versioned_, nullptr)),
      object_(std::move(other.object_)) {}

Array& Array::operator=(Array&& other) noexcept {
    if (this != &other) {
        this->~Array();
        new (this) Array(std::move(other));
    }
    return *this;
}

void Array::release() noexcept {
    if (buffer_.obj) PyBuffer_Release(&buffer_);
    if (managed_ && managed_->deleter) managed_->deleter(managed_);
    if (versioned_ && versioned_->deleter) versioned_->deleter(versioned_);
    managed_ = nullptr;
    versioned_ = nullptr;
    object_.reset();
}

int Array::visit(visitproc visit, void* arg) const {
    Py_VISIT(buffer_.obj);
    Py_VISIT(object_.ptr());
    return 0;
}

std::string Array::text() const {
    return std::string(boolean_ ? "bool" : name_of(type_)) +
           (on_device() ? " on cuda:" + std::to_string(device_) : std::string(" in host memory"));
}

void Array::set_type(nb::handle object, const char* name, char kind, size_t item_bytes, const std::string& shown) {
    item_bytes_ = item_bytes;
    if (kind == kind_boolean && item_bytes == 1) {
        boolean_ = true;
        type_ = weftUint8;
        return;
    }
    for (const TypeRow& row : rows)
        if (row.kind == kind && row.bytes == item_bytes) {
            type_ = row.type;
            return;
        }
    const std::string dtype = dtype_of(object, shown);
    refuse("python.dtype", std::string(name) + " has dtype " + dtype +
                               ", which Weft does not have. Convert it, or pass a view of another dtype of Weft, as "
                               "x.view(\"uint8\") to copy elements or x.view(\"float32\") to add complex64");
}

bool Array::from_buffer(nb::handle object, const char* name, Access access) {
    if (!PyObject_CheckBuffer(object.ptr())) return false;
    if (PyObject_GetBuffer(object.ptr(), &buffer_, PyBUF_RECORDS_RO) != 0) {
        buffer_ = {};
        if (!PyErr_ExceptionMatches(PyExc_Exception)) throw nb::python_error();
        // numpy has no format for the types of ml_dtypes, and jax none for bfloat16.
        PyErr_Clear();
        return false;
    }
    const char* const format = buffer_.format ? buffer_.format : "B";
    const char* letter = format;
    bool swapped = false;
    if (strchr("@=<>!", *letter) && *letter) {
        swapped = *letter == '>' || *letter == '!';
        ++letter;
    }
    char kind = 0;
    if (letter[0] && !letter[1] && !(swapped && buffer_.itemsize > 1)) {
        if (strchr("bhilqn", *letter)) kind = 'i';
        if (strchr("BHILQNc", *letter)) kind = 'u';
        if (strchr("efd", *letter)) kind = 'f';
        if (*letter == '?') kind = kind_boolean;
    }
    set_type(object, name, kind, size_t(buffer_.itemsize), std::string("format '") + format + "'");
    if (access == Access::write && buffer_.readonly) refuse_read_only(name);
    if (!PyBuffer_IsContiguous(&buffer_, 'C')) {
        std::vector<int64_t> shape(buffer_.shape, buffer_.shape + buffer_.ndim);
        std::vector<int64_t> strides(buffer_.strides, buffer_.strides + buffer_.ndim);
        refuse_strides(name, tuple_text(strides.data(), buffer_.ndim), tuple_text(shape.data(), buffer_.ndim));
    }
    data_ = buffer_.buf;
    count_ = size_t(buffer_.len) / item_bytes_;
    return true;
}

bool Array::from_interface(nb::handle object, const char* attribute, const char* name, Access access) {
    nb::object interface = nb::getattr(object, attribute, nb::none());
    if (!nb::isinstance<nb::dict>(interface)) return false;
    const nb::dict facts = nb::borrow<nb::dict>(interface);
    const std::string type = text_of(facts["typestr"]);
    const std::string dtype = dtype_of(object, type);
    const bool swapped = type.size() > 2 && type[0] == '>' && type.substr(2) != "1";
    char kind = type.size() > 2 && !swapped ? type[1] : '\0';
    if (const char other = kind_of_name(dtype)) kind = other;
    const size_t item_bytes = type.size() > 2 ? strtoul(type.c_str() + 2, nullptr, 10) : 0;
    set_type(object, name, kind, item_bytes, type);

    std::vector<int64_t> shape, strides;
    count_ = 1;
    for (nb::handle length : facts["shape"]) {
        shape.push_back(nb::cast<int64_t>(length));
        count_ *= size_t(shape.back());
    }
    nb::object given = facts.contains("strides") ? nb::object(facts["strides"]) : nb::object(nb::none());
    if (!given.is_none()) {
        for (nb::handle stride : given) strides.push_back(nb::cast<int64_t>(stride));
        if (strides.size() != shape.size() ||
            !in_c_order(shape.data(), strides.data(), int(shape.size()), int64_t(item_bytes)))
            refuse_strides(name, tuple_text(strides.data(), int(strides.size())),
                           tuple_text(shape.data(), int(shape.size())));
    }
    const nb::object data = facts["data"];
    data_ = reinterpret_cast<void*>(nb::cast<uintptr_t>(data[0]));
    if (access == Access::write && nb::cast<bool>(data[1])) refuse_read_only(name);
    if (!strcmp(attribute, "__cuda_array_interface__")) {
        nb::object device = nb::getattr(object, "device", nb::none());
        device = nb::getattr(device, "id", nb::getattr(device, "index", nb::none()));
        device_ = nb::isinstance<nb::int_>(device) ? nb::cast<int>(device) : 0;
    }
    object_ = nb::borrow(object);
    return true;
}

bool Array::from_dlpack(nb::handle object, const char* name, Access access) {
    nb::object exporter = nb::getattr(object, "__dlpack__", nb::none());
    nb::object where = nb::getattr(object, "__dlpack_device__", nb::none());
    if (exporter.is_none() || where.is_none()) return false;
    const nb::object place = where();
    const int device_type = nb::cast<int>(place[0]);
    const bool device = device_type == dlpack::cuda || device_type == dlpack::cuda_managed;
    if (!device && device_type != dlpack::cpu && device_type != dlpack::cuda_host)
        refuse("python.device", std::string(name) + " is on a device of DLPack type " + std::to_string(device_type) +
                                    ". Weft takes host memory and CUDA devices");
    nb::object capsule;
    nb::dict arguments;
    // -1: the producer waits for no stream. The order of streams is the caller's.
    if (device) arguments["stream"] = -1;
    nb::dict versioned = nb::borrow<nb::dict>(nb::steal(PyDict_Copy(arguments.ptr())));
    versioned["max_version"] = nb::make_tuple(1, 0);
    try {
        try {
            capsule = exporter(**versioned);
        } catch (nb::python_error& error) {
            // Producers of DLPack 0.x do not know max_version.
            if (!error.matches(PyExc_TypeError)) throw;
            capsule = exporter(**arguments);
        }
    } catch (nb::python_error& error) {
        if (!error.matches(PyExc_Exception)) throw;
        refuse("python.buffer", std::string(name) + " does not export its memory: " + text_of(error.value()) +
                                    ". Correct what it names");
    }
    const dlpack::Tensor* tensor = nullptr;
    uint64_t flags = 0;
    if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned")) {
        versioned_ = static_cast<dlpack::VersionedTensor*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor_versioned"));
        PyCapsule_SetName(capsule.ptr(), "used_dltensor_versioned");
        if (versioned_->version.major > 1)
            refuse("python.buffer", std::string(name) + " speaks DLPack " + std::to_string(versioned_->version.major) +
                                        ", and Weft DLPack 1. Use an older release of its library");
        tensor = &versioned_->tensor;
        flags = versioned_->flags;
    } else if (PyCapsule_IsValid(capsule.ptr(), "dltensor")) {
        managed_ = static_cast<dlpack::ManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
        PyCapsule_SetName(capsule.ptr(), "used_dltensor");
        tensor = &managed_->tensor;
        // DLPack 0.x does not say that jax's arrays are immutable.
        const nb::object module =
            nb::getattr(nb::handle(reinterpret_cast<PyObject*>(Py_TYPE(object.ptr()))), "__module__", nb::str(""));
        if (text_of(module).rfind("jax", 0) == 0) flags = dlpack::read_only;
    } else {
        refuse("python.buffer", std::string(name) + " gave no DLPack capsule. Report this to its library");
    }
    if (access == Access::write && (flags & (dlpack::read_only | dlpack::is_copied))) refuse_read_only(name);

    char kind = 0;
    switch (tensor->type.code) {
        case dlpack::signed_integer: kind = 'i'; break;
        case dlpack::unsigned_integer: kind = 'u'; break;
        case dlpack::floating: kind = 'f'; break;
        case dlpack::bfloat: kind = kind_bfloat; break;
        case dlpack::boolean: kind = kind_boolean; break;
        case dlpack::float8_e4m3fn: kind = kind_e4m3; break;
        case dlpack::float8_e5m2: kind = kind_e5m2; break;
    }
    if (tensor->type.lanes != 1 || tensor->type.bits % 8) kind = 0;
    set_type(object, name, kind, tensor->type.bits / 8,
             "code " + std::to_string(tensor->type.code) + " with " + std::to_string(tensor->type.bits) + " bits");
    if (tensor->strides && !in_c_order(tensor->shape, tensor->strides, tensor->dimensions, 1))
        refuse_strides(name, tuple_text(tensor->strides, tensor->dimensions),
                       tuple_text(tensor->shape, tensor->dimensions));
    count_ = 1;
    for (int i = 0; i < tensor->dimensions; ++i) count_ *= size_t(tensor->shape[i]);
    data_ = static_cast<char*>(tensor->data) + tensor->byte_offset;
    if (device) device_ = tensor->device.index;
    return true;
}

nb::object without_autograd(nb::handle object) {
    const auto is = [&](const char* attribute) { return nb::getattr(object, attribute, nb::none()).ptr() == Py_True; };
    return is("requires_grad") && is("is_leaf") ? object.attr("detach")() : nb::borrow(object);
}

void check_alike(const Array& left, const char* left_name, const Array& right, const char* right_name) {
    if (left.type() != right.type() || left.is_boolean() != right.is_boolean()) [[unlikely]]
        refuse("python.dtype", std::string(left_name) + " is " + left.text() + ", but " + right_name + " is " +
                                   right.text() + ". Give both one dtype");
    if (left.device() != right.device()) [[unlikely]]
        refuse("python.device", std::string(left_name) + " is " + left.text() + ", but " + right_name + " is " +
                                    right.text() + ". Put both on one device");
}

void check_count(const Array& array, const char* name, size_t count, const char* because) {
    if (array.count() != count) [[unlikely]]
        refuse("python.size", std::string(name) + " has " + std::to_string(array.count()) + " elements; it must have " +
                                  std::to_string(count) + ", " + because);
}

}  // namespace weft::python
