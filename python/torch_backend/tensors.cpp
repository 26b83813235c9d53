#include "tensors.hpp"

#include <numeric>

#include "failure.hpp"

namespace weft_torch {

Elements moved(at::ScalarType type) {
    switch (type) {
        case at::kChar: return {weftInt8, 1};
        case at::kByte:
        case at::kBool: return {weftUint8, 1};
        case at::kInt: return {weftInt32, 1};
        case at::kUInt32: return {weftUint32, 1};
        case at::kLong: return {weftInt64, 1};
        case at::kUInt64: return {weftUint64, 1};
        case at::kHalf: return {weftFloat16, 1};
        case at::kFloat: return {weftFloat32, 1};
        case at::kDouble: return {weftFloat64, 1};
        case at::kBFloat16: return {weftBfloat16, 1};
        case at::kFloat8_e4m3fn: return {weftFloat8e4m3, 1};
        case at::kFloat8_e5m2: return {weftFloat8e5m2, 1};
        case at::kComplexFloat: return {weftFloat32, 2};
        case at::kComplexDouble: return {weftFloat64, 2};
        default: return {weftUint8, at::elementSize(type)};
    }
}

void check_tensor(const char* call, const char* what, const at::Tensor& tensor) {
    if (!tensor.defined()) throw_argument(c10::str(call, ": ", what, " is not a tensor [argument.null]"));
    if (tensor.layout() != at::kStrided)
        throw_argument(c10::str(call, ": ", what, " has the layout ", tensor.layout(),
                                "; pass a dense tensor (to_dense()) [argument.datatype]"));
    if (tensor.is_quantized())
        throw_argument(c10::str(call, ": ", what, " is quantized; pass its int_repr() [argument.datatype]"));
    if (tensor.device().is_meta())
        throw_argument(c10::str(call, ": ", what, " is a meta tensor, which has no memory [memory.kind]"));
}

void check_host_tensor(const char* call, const char* what, const at::Tensor& tensor) {
    check_tensor(call, what, tensor);
    if (!tensor.device().is_cpu())
        throw_argument(
            c10::str(call, ": ", what, " is on ", tensor.device(), "; pass a tensor of the CPU [memory.kind]"));
}

void check_tensors(const char* call, const char* what, const std::vector<at::Tensor>& tensors) {
    for (const at::Tensor& tensor : tensors) {
        check_tensor(call, what, tensor);
        if (tensor.scalar_type() != tensors[0].scalar_type())
            throw_argument(c10::str(call, ": ", what, " has tensors of ", tensors[0].scalar_type(), " and of ",
                                    tensor.scalar_type(), "; convert them to one type [argument.datatype]"));
    }
}

at::Tensor& only(const char* call, const char* what, std::vector<at::Tensor>& tensors) {
    if (tensors.size() != 1)
        throw_argument(c10::str(call, ": ", what, " has ", tensors.size(), " tensors; pass one [argument.count]"));
    check_tensor(call, what, tensors[0]);
    return tensors[0];
}

bool is_plain(const at::Tensor& tensor) { return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg(); }

at::Tensor dense(const at::Tensor& tensor) { return tensor.resolve_conj().resolve_neg().contiguous(); }

size_t weft_count(const at::Tensor& tensor) { return size_t(tensor.numel()) * moved(tensor.scalar_type()).per_element; }

static bool lie_in_a_row(const std::vector<at::Tensor>& tensors) {
    const char* expected = nullptr;
    for (const at::Tensor& tensor : tensors) {
        if (!is_plain(tensor)) return false;
        if (tensor.numel() == 0) continue;
        const auto* at = static_cast<const char*>(tensor.const_data_ptr());
        if (expected && at != expected) return false;
        // Weft refuses a buffer of two allocations of a device.
        if (!tensor.device().is_cpu() && !tensor.storage().is_alias_of(tensors[0].storage())) return false;
        expected = at + tensor.nbytes();
    }
    return true;
}

Row::Row(std::vector<at::Tensor> tensors) : tensors_(std::move(tensors)), in_place_(lie_in_a_row(tensors_)) {
    counts_.reserve(tensors_.size());
    for (const at::Tensor& tensor : tensors_) counts_.push_back(size_t(tensor.numel()));
    total_ = std::accumulate(counts_.begin(), counts_.end(), size_t(0));
}

bool Row::is_even() const {
    for (const size_t count : counts_)
        if (count != counts_[0]) return false;
    return true;
}

void* Row::data() {
    if (total_ == 0) return nullptr;
    if (in_place_) {
        for (const at::Tensor& tensor : tensors_)
            if (tensor.numel() > 0) return tensor.data_ptr();
    }
    if (!buffer_.defined()) buffer_ = at::empty({int64_t(total_)}, tensors_[0].options());
    return buffer_.data_ptr();
}

void Row::gather() {
    data();
    if (in_place_ || total_ == 0) return;
    int64_t at = 0;
    for (const at::Tensor& tensor : tensors_) {
        buffer_.narrow(0, at, tensor.numel()).view(tensor.sizes()).copy_(tensor);
        at += tensor.numel();
    }
}

void Row::spread() {
    if (in_place_ || total_ == 0) return;
    int64_t at = 0;
    for (const at::Tensor& tensor : tensors_) {
        tensor.copy_(buffer_.narrow(0, at, tensor.numel()).view(tensor.sizes()));
        at += tensor.numel();
    }
}

std::vector<size_t> displacements(const std::vector<size_t>& counts) {
    std::vector<size_t> displs(counts.size());
    std::exclusive_scan(counts.begin(), counts.end(), displs.begin(), size_t(0));
    return displs;
}

}  // namespace weft_torch
