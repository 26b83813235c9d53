#include "reduction.hpp"

#include "failure.hpp"
#include "tensors.hpp"

namespace weft_torch {

namespace {

using c10d::ReduceOp;

const char* name_of(ReduceOp::RedOpType op) {
    static constexpr const char* names[] = {"SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM"};
    return size_t(op) < std::size(names) ? names[op] : "UNUSED";
}

weftRedOp_t of_bool(const char* call, ReduceOp::RedOpType op) {
    switch (op) {
        case ReduceOp::SUM:
        case ReduceOp::MAX:
        case ReduceOp::BOR: return weftMax;
        case ReduceOp::PRODUCT:
        case ReduceOp::MIN:
        case ReduceOp::BAND: return weftMin;
        case ReduceOp::BXOR: return weftBxor;
        default:
            throw_argument(c10::str(call, ": ", name_of(op), " has no meaning for bool; convert the tensor to ",
                                    "another type [argument.reduction]"));
    }
}

weftRedOp_t of_number(ReduceOp::RedOpType op) {
    switch (op) {
        case ReduceOp::AVG: return weftAvg;
        case ReduceOp::PRODUCT: return weftProd;
        case ReduceOp::MIN: return weftMin;
        case ReduceOp::MAX: return weftMax;
        case ReduceOp::BAND: return weftBand;
        case ReduceOp::BOR: return weftBor;
        case ReduceOp::BXOR: return weftBxor;
        default: return weftSum;
    }
}

}  // namespace

Reduction::Reduction(const char* call, const at::Tensor& like, const ReduceOp& op) {
    const at::ScalarType type = like.scalar_type();
    const auto kind = ReduceOp::RedOpType(op);
    const bool is_complex = at::isComplexType(type);
    const bool bitwise = kind == ReduceOp::BAND || kind == ReduceOp::BOR || kind == ReduceOp::BXOR;
    if (kind == ReduceOp::UNUSED) throw_argument(c10::str(call, ": the reduction is UNUSED [argument.reduction]"));
    if (bitwise && !at::isIntegralType(type, true))
        throw_argument(c10::str(call, ": ", name_of(kind), " is for integers and bool, and the tensor is of ", type,
                                " [argument.reduction]"));
    if (is_complex && kind != ReduceOp::SUM && kind != ReduceOp::AVG && kind != ReduceOp::PREMUL_SUM)
        throw_argument(c10::str(call, ": ", name_of(kind), " has no meaning for ", type,
                                "; use SUM, AVG or PREMUL_SUM [argument.reduction]"));
    carried_ = type;
    if (type == at::kShort || type == at::kUInt16) carried_ = at::kInt;
    if (type == at::kBool) carried_ = at::kByte;
    if (is_complex) carried_ = c10::toRealValueType(type);
    const Elements elements = moved(carried_);
    // A type that moves as bytes has no arithmetic in Weft.
    if (elements.per_element != 1 || (elements.datatype == weftUint8 && carried_ != at::kByte))
        throw_argument(c10::str(call, ": tensors of ", type, " cannot be reduced; convert them to float32 first ",
                                "[argument.datatype]"));
    datatype_ = elements.datatype;
    per_element_ = is_complex ? 2 : 1;
    op_ = type == at::kBool ? of_bool(call, kind) : of_number(kind);
    if (kind != ReduceOp::PREMUL_SUM) return;
    if (!at::isFloatingType(type) && !is_complex)
        throw_argument(c10::str(call, ": PREMUL_SUM is for floats and complex numbers, and the tensor is of ", type,
                                " [argument.reduction]"));
    const auto* supplement = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
    if (!supplement) throw_argument(c10::str(call, ": PREMUL_SUM has no factor [argument.scalar]"));
    const at::Tensor& given = supplement->tensor_factor;
    if (!given.defined())
        factor_ = at::full({1}, supplement->double_factor, at::TensorOptions(carried_));
    else if (given.numel() != 1)
        throw_argument(c10::str(call, ": the factor of PREMUL_SUM has ", given.numel(),
                                " elements; pass a number or a tensor of one [argument.scalar]"));
    else if (!given.device().is_cpu() && given.device() == like.device())
        factor_ = given;
    else
        factor_ = given.to(at::kCPU, carried_).reshape({1}).contiguous();
}

at::Tensor Reduction::operand(const at::Tensor& tensor) const {
    const at::Tensor in_order = dense(tensor);
    if (in_order.is_complex()) return at::view_as_real(in_order);
    if (in_order.scalar_type() == at::kBool) return in_order.view(at::kByte);
    return in_order.to(carried_);
}

at::Tensor Reduction::receiver(const at::Tensor& tensor) const {
    if (is_plain(tensor)) {
        if (tensor.is_complex()) return at::view_as_real(tensor);
        if (tensor.scalar_type() == at::kBool) return tensor.view(at::kByte);
        if (tensor.scalar_type() == carried_) return tensor;
    }
    auto sizes = tensor.sizes().vec();
    if (tensor.is_complex()) sizes.push_back(2);
    return at::empty(sizes, tensor.options().dtype(carried_));
}

void Reduction::write(const at::Tensor& tensor, const at::Tensor& result) const {
    if (result.numel() == 0 || result.const_data_ptr() == tensor.const_data_ptr()) return;
    if (tensor.is_complex())
        tensor.copy_(at::view_as_complex(result));
    else if (tensor.scalar_type() == at::kBool)
        tensor.copy_(result.view(at::kBool));
    else
        tensor.copy_(result);
}

std::vector<at::Tensor> Reduction::device_factor() const {
    if (factor_.defined() && !factor_.device().is_cpu()) return {factor_};
    return {};
}

weftRedOp_t Reduction::make(weftComm_t comm) {
    if (!factor_.defined()) return op_;
    weftScalarResidence_t residence = weftScalarHostImmediate;
    operand_factor_ = factor_;
    if (!factor_.device().is_cpu()) {
        residence = weftScalarDevice;
        operand_factor_ = factor_.to(carried_).reshape({1});
    }
    weftRedOp_t made;
    check(weftRedOpCreatePreMulSum(&made, operand_factor_.data_ptr(), datatype_, residence, comm), comm);
    return made;
}

void Reduction::release(weftRedOp_t op, weftComm_t comm) const {
    if (factor_.defined()) check(weftRedOpDestroy(op, comm), comm);
}

}  // namespace weft_torch
