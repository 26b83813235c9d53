#include "sparse.hpp"

#include <ATen/core/grad_mode.h>

#include <numeric>

#include "failure.hpp"
#include "tensors.hpp"

namespace weft_torch {

namespace {

// A rank's description of its tensor, for the other ranks.
struct Shape {
    int64_t elements, type, sparse_dims, dims;
    int64_t sizes[12];

    bool fits(const Shape& other) const {
        return type == other.type && sparse_dims == other.sparse_dims && dims == other.dims &&
               std::equal(std::begin(sizes), std::end(sizes), other.sizes);
    }
};

std::string text_of(const Shape& shape) {
    return c10::str("a tensor of ", at::ScalarType(shape.type), " with sizes [",
                    c10::Join(", ", std::vector<int64_t>(shape.sizes, shape.sizes + shape.dims)), "], ",
                    shape.sparse_dims, " of them sparse");
}

// The rows of `part` of all ranks, in the order of the ranks.
at::Tensor all_rows(const at::Tensor& part, const std::vector<int64_t>& rows, weftComm_t comm) {
    const Elements elements = moved(part.scalar_type());
    const size_t in_row = part.size(0) > 0 ? size_t(part.numel() / part.size(0)) : 0;
    auto sizes = part.sizes().vec();
    sizes[0] = std::accumulate(rows.begin(), rows.end(), int64_t(0));
    at::Tensor all = at::empty(sizes, part.options());
    const size_t per_row =
        (in_row > 0 ? in_row : size_t(c10::multiply_integers(part.sizes().slice(1)))) * elements.per_element;
    std::vector<size_t> counts;
    for (const int64_t each : rows) counts.push_back(size_t(each) * per_row);
    check(weftAllGatherv(part.const_data_ptr(), size_t(part.numel()) * elements.per_element, all.data_ptr(),
                         counts.data(), displacements(counts).data(), elements.datatype, comm, nullptr),
          comm);
    return all;
}

}  // namespace

bool is_sparse(const std::vector<at::Tensor>& tensors) {
    return tensors.size() == 1 && tensors[0].defined() && tensors[0].layout() == at::kSparse;
}

SparseSum::SparseSum(const char* call, at::Tensor tensor, const c10d::ReduceOp& op)
    : call_(call), tensor_(std::move(tensor)) {
    if (!tensor_.device().is_cpu())
        throw_argument(c10::str(call, ": the sparse tensor is on ", tensor_.device(),
                                "; sparse tensors must be on the CPU [memory.kind]"));
    if (c10d::ReduceOp::RedOpType(op) != c10d::ReduceOp::SUM)
        throw_argument(c10::str(call, ": the tensor is sparse, and the only reduction of sparse tensors is SUM; ",
                                "use it, or pass a dense tensor (to_dense()) [argument.reduction]"));
    if (size_t(tensor_.dim()) > std::size(Shape{}.sizes))
        throw_argument(c10::str(call, ": the sparse tensor has ", tensor_.dim(), " dimensions; at most ",
                                std::size(Shape{}.sizes), " are possible [argument.datatype]"));
}

void SparseSum::gather(weftComm_t comm, int ranks) {
    const at::NoGradGuard no_gradients;
    const at::Tensor own = tensor_.coalesce();
    const at::Tensor indices = own.indices().t().contiguous();  // one row for each element
    const at::Tensor values = dense(own.values());
    Shape shape{indices.size(0), int64_t(own.scalar_type()), own.sparse_dim(), own.dim(), {}};
    std::copy(own.sizes().begin(), own.sizes().end(), shape.sizes);
    std::vector<Shape> shapes(static_cast<size_t>(ranks));
    check(weftAllGather(&shape, shapes.data(), sizeof shape / sizeof(int64_t), weftInt64, comm, nullptr), comm);
    std::vector<int64_t> rows;
    for (size_t rank = 0; rank < shapes.size(); ++rank) {
        // All ranks compare with rank 0, so that all find the same.
        if (!shapes[rank].fits(shapes[0]))
            throw_failure(c10::str(call_, ": rank 0 passed ", text_of(shapes[0]), ", and rank ", rank, " ",
                                   text_of(shapes[rank]), "; all ranks need one shape and type [mismatch.datatype]"));
        rows.push_back(shapes[rank].elements);
    }
    indices_ = all_rows(indices, rows, comm);
    values_ = all_rows(values, rows, comm);
}

void SparseSum::write() {
    const at::NoGradGuard no_gradients;
    const at::Tensor sum = at::sparse_coo_tensor(indices_.t(), values_, tensor_.sizes(), tensor_.options()).coalesce();
    tensor_.copy_(sum);
    indices_.reset();
    values_.reset();
}

}  // namespace weft_torch
