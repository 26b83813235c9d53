#include "src/api/training/tensors.hpp"
#include "src/api/training/structs.hpp"

#include <cstddef>

#include "src/base/datatype.hpp"

namespace weft::internal {

namespace {

// The size in the first version; later versions only append fields.
constexpr size_t first_tensor_size = offsetof(weftTrainTensor_t, datatype) + sizeof(weftDataType_t);

bool is_differentiable(weftDataType_t type) {
    return type == weftFloat16 || type == weftBfloat16 || type == weftFloat32 || type == weftFloat64;
}

}  // namespace

Result<weftTrainTensor_t> read_entry(const weftTrainTensor_t* tensors, size_t number, const char* kind) {
    return read_struct(tensors, number, WEFT_TRAIN_TENSOR_INITIALIZER, first_tensor_size,
                       fmt::format("{} {}", kind, number), "WEFT_TRAIN_TENSOR_INITIALIZER");
}

Status check_tensor(const weftTrainTensor_t& tensor, const char* kind, size_t number, bool has_gradient,
                    std::set<std::string>& names) {
    const auto name = fmt::format("{} {}", kind, number);
    if (!tensor.name || !*tensor.name) return fail(error::argument_null, "{} has no name: set its field name", name);
    if (!is_datatype(tensor.datatype))
        return fail(error::argument_datatype, "the datatype of {}, \"{}\", is {}; types are 0 to {}", name, tensor.name,
                    int(tensor.datatype), weftNumTypes - 1);
    if (has_gradient && !is_differentiable(tensor.datatype))
        return fail(error::argument_datatype,
                    "{}, \"{}\", has {} elements; gradients are float16, bfloat16, float32 or float64. Register values "
                    "without a gradient as buffers",
                    name, tensor.name, name_of(tensor.datatype));
    if (tensor.count > size_t(1) << 48)
        return fail(error::argument_count, "{}, \"{}\", has {} elements, which is more than any memory holds", name,
                    tensor.name, tensor.count);
    if (tensor.rows > 0 && tensor.count % tensor.rows != 0)
        return fail(error::argument_value, "{}, \"{}\", has {} elements, which is no multiple of its {} rows", name,
                    tensor.name, tensor.count, tensor.rows);
    if (!names.insert(tensor.name).second)
        return fail(error::argument_value, "two {}s have the name \"{}\": names are different", kind, tensor.name);
    return ok();
}

}  // namespace weft::internal
