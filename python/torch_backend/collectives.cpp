// collectives.cpp: the collectives of the backend, each as a call of Weft.
#include <memory>

#include "backend.hpp"
#include "capture.hpp"
#include "failure.hpp"
#include "reduction.hpp"
#include "sparse.hpp"
#include "tensors.hpp"

namespace weft_torch {

namespace {

using c10d::OpType;

void check_type(const char* call, const at::Tensor& output, const at::Tensor& input) {
    if (output.scalar_type() != input.scalar_type())
        throw_argument(c10::str(call, ": the output is of ", output.scalar_type(), " and the input of ",
                                input.scalar_type(), "; both need one type [argument.datatype]"));
}

void check_elements(const char* call, const char* what, int64_t is, int64_t wanted) {
    if (is != wanted)
        throw_argument(
            c10::str(call, ": ", what, " has ", is, " elements; it must have ", wanted, " [argument.count]"));
}

void check_lists(const char* call, const char* what, size_t is, size_t wanted) {
    if (is != wanted)
        throw_argument(c10::str(call, ": ", what, " has ", is, " entries; it must have ", wanted, " [argument.count]"));
}

std::vector<size_t> scaled(std::vector<size_t> counts, size_t by) {
    for (size_t& count : counts) count *= by;
    return counts;
}

// The parts of one side of an all-to-all, in elements.
std::vector<size_t> split_counts(const char* call, const char* what, const at::Tensor& tensor,
                                 const std::vector<int64_t>& splits, int size) {
    const int64_t rows = tensor.dim() > 0 ? tensor.size(0) : tensor.numel();
    if (splits.empty()) {
        if (rows % size != 0)
            throw_argument(c10::str(call, ": ", what, " has ", rows, " rows, which ", size,
                                    " ranks cannot divide; pass split sizes [argument.counts]"));
        return std::vector<size_t>(size_t(size), size_t(tensor.numel() / size));
    }
    check_lists(call, "the list of split sizes", splits.size(), size_t(size));
    const int64_t in_row = rows > 0 ? tensor.numel() / rows : 0;
    int64_t sum = 0;
    std::vector<size_t> counts;
    for (const int64_t split : splits) {
        if (split < 0) throw_argument(c10::str(call, ": a split size is ", split, " [argument.counts]"));
        sum += split;
        counts.push_back(size_t(split * in_row));
    }
    if (sum != rows)
        throw_argument(c10::str(call, ": the split sizes of ", what, " add up to ", sum, "; it has ", rows,
                                " rows [argument.counts]"));
    return counts;
}

}  // namespace

// ---- Single calls ----

Call Backend::all_reduce(const char* call, const at::Tensor& tensor, const c10d::ReduceOp& op) const {
    check_tensor(call, "the tensor", tensor);
    struct State {
        Reduction reduction;
        at::Tensor operand, result;
        weftRedOp_t op = weftSum;
    };
    auto state = std::make_shared<State>(State{Reduction(call, tensor, op), {}, {}});
    return {[state, tensor](weftComm_t comm, weftStream_t stream) {
                state->operand = state->reduction.operand(tensor);
                // A copy is reduced in place.
                state->result = state->operand;
                state->op = state->reduction.make(comm);
                void* data = state->operand.data_ptr();
                check(weftAllReduce(data, data, size_t(state->operand.numel()), state->reduction.datatype(), state->op,
                                    comm, stream),
                      comm);
            },
            [state, tensor](weftComm_t comm) {
                state->reduction.release(state->op, comm);
                state->reduction.write(tensor, state->result);
            },
            state->reduction.device_factor()};
}

Call Backend::all_gather(const char* call, const at::Tensor& output, const at::Tensor& input) const {
    check_tensor(call, "the output", output);
    check_tensor(call, "the input", input);
    check_type(call, output, input);
    check_elements(call, "the output", output.numel(), input.numel() * size_);
    auto target = std::make_shared<std::optional<Output>>();
    auto source = std::make_shared<at::Tensor>();
    return {[target, source, output, input](weftComm_t comm, weftStream_t stream) {
                target->emplace(output);
                *source = dense(input);
                check(weftAllGather(source->const_data_ptr(), (*target)->data(), weft_count(input),
                                    moved(input.scalar_type()).datatype, comm, stream),
                      comm);
            },
            [target](weftComm_t) { (*target)->write(); }};
}

Call Backend::all_gather(const char* call, const Tensors& outputs, const at::Tensor& input) const {
    check_lists(call, "the list of outputs", outputs.size(), size_t(size_));
    check_tensors(call, "the list of outputs", outputs);
    check_tensor(call, "the input", input);
    check_type(call, outputs[0], input);
    check_elements(call, "this rank's output", outputs[size_t(rank_)].numel(), input.numel());
    auto row = std::make_shared<Row>(outputs);
    auto source = std::make_shared<at::Tensor>();
    return {[row, source, input](weftComm_t comm, weftStream_t stream) {
                *source = dense(input);
                const Elements elements = moved(input.scalar_type());
                if (row->is_even()) {
                    check(weftAllGather(source->const_data_ptr(), row->data(), weft_count(input), elements.datatype,
                                        comm, stream),
                          comm);
                    return;
                }
                const auto counts = scaled(row->counts(), elements.per_element);
                check(weftAllGatherv(source->const_data_ptr(), weft_count(input), row->data(), counts.data(),
                                     displacements(counts).data(), elements.datatype, comm, stream),
                      comm);
            },
            [row](weftComm_t) { row->spread(); }};
}

Call Backend::reduce_scatter(const char* call, const at::Tensor& output, const at::Tensor& input,
                             const c10d::ReduceOp& op) const {
    check_tensor(call, "the output", output);
    check_tensor(call, "the input", input);
    check_type(call, output, input);
    check_elements(call, "the input", input.numel(), output.numel() * size_);
    struct State {
        Reduction reduction;
        at::Tensor operand, result;
        weftRedOp_t op = weftSum;
    };
    auto state = std::make_shared<State>(State{Reduction(call, output, op), {}, {}});
    return {[state, output, input](weftComm_t comm, weftStream_t stream) {
                state->operand = state->reduction.operand(input);
                state->result = state->reduction.receiver(output);
                state->op = state->reduction.make(comm);
                check(weftReduceScatter(state->operand.const_data_ptr(), state->result.data_ptr(),
                                        size_t(state->result.numel()), state->reduction.datatype(), state->op, comm,
                                        stream),
                      comm);
            },
            [state, output](weftComm_t comm) {
                state->reduction.release(state->op, comm);
                state->reduction.write(output, state->result);
            },
            state->reduction.device_factor()};
}

// ---- The methods of c10d::Backend ----

WorkPtr Backend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
    if (is_sparse(tensors)) return allreduce_sparse(tensors, options);
    const at::Tensor& tensor = only("all_reduce", "the list", tensors);
    return submit({OpType::ALLREDUCE, "weft:all_reduce"}, tensors, tensors,
                  {all_reduce("all_reduce", tensor, options.reduceOp)}, options.timeout, options.asyncOp);
}

WorkPtr Backend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) {
    if (!is_sparse(tensors)) return allreduce(tensors, options);
    if (is_coalescing())
        throw_usage(
            "all_reduce: a sparse tensor cannot be part of a coalesced call; reduce it by itself "
            "[group.not-preparable]");
    auto sum = std::make_shared<SparseSum>("all_reduce", tensors[0], options.reduceOp);
    Call call{[this, sum](weftComm_t comm, weftStream_t) { sum->gather(comm, size_); },
              [sum](weftComm_t) { sum->write(); }};
    return submit({OpType::_ALLREDUCE_SPARSE, "weft:all_reduce_sparse"}, tensors, tensors, {std::move(call)},
                  options.timeout, options.asyncOp);
}

WorkPtr Backend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
    std::vector<Call> calls;
    for (const at::Tensor& tensor : tensors)
        calls.push_back(all_reduce("all_reduce_coalesced", tensor, options.reduceOp));
    return submit({OpType::ALLREDUCE_COALESCED, "weft:all_reduce_coalesced"}, tensors, tensors, std::move(calls),
                  options.timeout, options.asyncOp);
}

WorkPtr Backend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
    const at::Tensor tensor = only("broadcast", "the list", tensors);
    const int root = checked_root("broadcast", options.rootRank);
    auto memory = std::make_shared<std::optional<Output>>();
    Call call{[this, memory, tensor, root](weftComm_t comm, weftStream_t stream) {
                  if (rank_ == root)
                      memory->emplace(dense(tensor));
                  else
                      memory->emplace(tensor);
                  check(weftBcast((*memory)->data(), weft_count(tensor), moved(tensor.scalar_type()).datatype, root,
                                  comm, stream),
                        comm);
              },
              [this, memory, root](weftComm_t) {
                  if (rank_ != root) (*memory)->write();
              }};
    return submit({OpType::BROADCAST, "weft:broadcast"}, tensors, tensors, {std::move(call)}, options.timeout,
                  options.asyncOp);
}

WorkPtr Backend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
    const at::Tensor tensor = only("reduce", "the list", tensors);
    const int root = checked_root("reduce", options.rootRank);
    struct State {
        Reduction reduction;
        at::Tensor operand;
        weftRedOp_t op = weftSum;
    };
    auto state = std::make_shared<State>(State{Reduction("reduce", tensor, options.reduceOp), {}});
    Call call{[this, state, tensor, root](weftComm_t comm, weftStream_t stream) {
                  state->operand = state->reduction.operand(tensor);
                  state->op = state->reduction.make(comm);
                  void* data = state->operand.data_ptr();
                  check(weftReduce(data, rank_ == root ? data : nullptr, size_t(state->operand.numel()),
                                   state->reduction.datatype(), state->op, root, comm, stream),
                        comm);
              },
              [this, state, tensor, root](weftComm_t comm) {
                  state->reduction.release(state->op, comm);
                  if (rank_ == root) state->reduction.write(tensor, state->operand);
              },
              state->reduction.device_factor()};
    return submit({OpType::REDUCE, "weft:reduce"}, tensors, tensors, {std::move(call)}, options.timeout,
                  options.asyncOp);
}

WorkPtr Backend::allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
    const at::Tensor& input = only("all_gather", "the list of inputs", inputs);
    check_lists("all_gather", "the list of output lists", outputs.size(), 1);
    return submit({OpType::ALLGATHER, "weft:all_gather"}, inputs, outputs[0],
                  {all_gather("all_gather", outputs[0], input)}, options.timeout, options.asyncOp);
}

WorkPtr Backend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                     const c10d::AllgatherOptions& options) {
    // outputs[r][i] receives input i of rank r.
    check_lists("all_gather_coalesced", "the list of output lists", outputs.size(), size_t(size_));
    for (const Tensors& list : outputs)
        check_lists("all_gather_coalesced", "an output list", list.size(), inputs.size());
    std::vector<Call> calls;
    Tensors all;
    for (size_t at = 0; at < inputs.size(); ++at) {
        Tensors of_input;
        for (const Tensors& list : outputs) of_input.push_back(list[at]);
        calls.push_back(all_gather("all_gather_coalesced", of_input, inputs[at]));
        all.insert(all.end(), of_input.begin(), of_input.end());
    }
    return submit({OpType::ALLGATHER_COALESCED, "weft:all_gather_coalesced"}, inputs, std::move(all), std::move(calls),
                  options.timeout, options.asyncOp);
}

WorkPtr Backend::_allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) {
    return submit({OpType::_ALLGATHER_BASE, "weft:all_gather_single"}, {input}, {output},
                  {all_gather("all_gather_single", output, input)}, options.timeout, options.asyncOp);
}

WorkPtr Backend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                 const c10d::AllgatherOptions& options) {
    check_lists("all_gather_single_coalesced", "the list of outputs", outputs.size(), inputs.size());
    std::vector<Call> calls;
    for (size_t at = 0; at < inputs.size(); ++at)
        calls.push_back(all_gather("all_gather_single_coalesced", outputs[at], inputs[at]));
    return submit({OpType::COALESCED, "weft:all_gather_single_coalesced"}, inputs, outputs, std::move(calls),
                  options.timeout, options.asyncOp);
}

WorkPtr Backend::gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
    const at::Tensor input = only("gather", "the list of inputs", inputs);
    const int root = checked_root("gather", options.rootRank);
    Tensors list;
    if (rank_ == root) {
        check_lists("gather", "the list of output lists", outputs.size(), 1);
        list = outputs[0];
        check_lists("gather", "the list of outputs", list.size(), size_t(size_));
        check_tensors("gather", "the list of outputs", list);
        check_type("gather", list[0], input);
        for (const at::Tensor& output : list) check_elements("gather", "an output", output.numel(), input.numel());
    } else if (!outputs.empty()) {
        throw_argument("gather: outputs are for the root only; pass an empty list on other ranks [argument.count]");
    }
    auto row = std::make_shared<Row>(list);
    auto source = std::make_shared<at::Tensor>();
    Call call{[row, source, input, root](weftComm_t comm, weftStream_t stream) {
                  *source = dense(input);
                  check(weftGather(source->const_data_ptr(), row->data(), weft_count(input),
                                   moved(input.scalar_type()).datatype, root, comm, stream),
                        comm);
              },
              [row](weftComm_t) { row->spread(); }};
    return submit({OpType::GATHER, "weft:gather"}, inputs, list, {std::move(call)}, options.timeout, options.asyncOp);
}

WorkPtr Backend::gather_single(at::Tensor& output, at::Tensor& input, const c10d::GatherOptions& options) {
    check_tensor("gather_single", "the input", input);
    const int root = checked_root("gather_single", options.rootRank);
    if (rank_ == root) {
        check_tensor("gather_single", "the output", output);
        check_type("gather_single", output, input);
        check_elements("gather_single", "the output", output.numel(), input.numel() * size_);
    }
    auto target = std::make_shared<std::optional<Output>>();
    auto source = std::make_shared<at::Tensor>();
    Call call{[this, target, source, input, output, root](weftComm_t comm, weftStream_t stream) {
                  *source = dense(input);
                  if (rank_ == root) target->emplace(output);
                  check(weftGather(source->const_data_ptr(), rank_ == root ? (*target)->data() : nullptr,
                                   weft_count(input), moved(input.scalar_type()).datatype, root, comm, stream),
                        comm);
              },
              [target](weftComm_t) {
                  if (*target) (*target)->write();
              }};
    return submit({OpType::GATHER, "weft:gather_single"}, {input}, {output}, {std::move(call)}, options.timeout,
                  options.asyncOp);
}

WorkPtr Backend::scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) {
    const at::Tensor output = only("scatter", "the list of outputs", outputs);
    const int root = checked_root("scatter", options.rootRank);
    Tensors list;
    if (rank_ == root) {
        check_lists("scatter", "the list of input lists", inputs.size(), 1);
        list = inputs[0];
        check_lists("scatter", "the list of inputs", list.size(), size_t(size_));
        check_tensors("scatter", "the list of inputs", list);
        check_type("scatter", output, list[0]);
        for (const at::Tensor& input : list) check_elements("scatter", "an input", input.numel(), output.numel());
    } else if (!inputs.empty()) {
        throw_argument("scatter: inputs are for the root only; pass an empty list on other ranks [argument.count]");
    }
    auto row = std::make_shared<Row>(list);
    auto target = std::make_shared<std::optional<Output>>();
    Call call{[row, target, output, root](weftComm_t comm, weftStream_t stream) {
                  target->emplace(output);
                  row->gather();
                  check(weftScatter(row->data(), (*target)->data(), weft_count(output),
                                    moved(output.scalar_type()).datatype, root, comm, stream),
                        comm);
              },
              [target](weftComm_t) { (*target)->write(); }};
    return submit({OpType::SCATTER, "weft:scatter"}, list, outputs, {std::move(call)}, options.timeout,
                  options.asyncOp);
}

WorkPtr Backend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                const c10d::ReduceScatterOptions& options) {
    const char* const name = "reduce_scatter";
    const at::Tensor output = only(name, "the list of outputs", outputs);
    check_lists(name, "the list of input lists", inputs.size(), 1);
    const Tensors& list = inputs[0];
    check_lists(name, "the list of inputs", list.size(), size_t(size_));
    check_tensors(name, "the list of inputs", list);
    check_type(name, output, list[0]);
    check_elements(name, "this rank's input", list[size_t(rank_)].numel(), output.numel());
    struct State {
        Reduction reduction;
        Row row;
        Tensors operands;
        at::Tensor result;
        weftRedOp_t op = weftSum;
    };
    auto state = std::make_shared<State>(State{Reduction(name, output, options.reduceOp), {}, {}, {}});
    Call call{[state, list, output](weftComm_t comm, weftStream_t stream) {
                  for (const at::Tensor& each : list) state->operands.push_back(state->reduction.operand(each));
                  state->row = Row(state->operands);
                  state->row.gather();
                  state->result = state->reduction.receiver(output);
                  state->op = state->reduction.make(comm);
                  const weftDataType_t datatype = state->reduction.datatype();
                  if (state->row.is_even())
                      check(weftReduceScatter(state->row.data(), state->result.data_ptr(),
                                              size_t(state->result.numel()), datatype, state->op, comm, stream),
                            comm);
                  else
                      check(weftReduceScatterv(state->row.data(), state->result.data_ptr(), state->row.counts().data(),
                                               datatype, state->op, comm, stream),
                            comm);
              },
              [state, output](weftComm_t comm) {
                  state->reduction.release(state->op, comm);
                  state->reduction.write(output, state->result);
              },
              state->reduction.device_factor()};
    return submit({OpType::REDUCE_SCATTER, "weft:reduce_scatter"}, list, outputs, {std::move(call)}, options.timeout,
                  options.asyncOp);
}

WorkPtr Backend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                      const c10d::ReduceScatterOptions& options) {
    return submit({OpType::_REDUCE_SCATTER_BASE, "weft:reduce_scatter_single"}, {input}, {output},
                  {reduce_scatter("reduce_scatter_single", output, input, options.reduceOp)}, options.timeout,
                  options.asyncOp);
}

WorkPtr Backend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                 const c10d::ReduceScatterOptions& options) {
    check_lists("reduce_scatter_single_coalesced", "the list of outputs", outputs.size(), inputs.size());
    std::vector<Call> calls;
    for (size_t at = 0; at < inputs.size(); ++at)
        calls.push_back(reduce_scatter("reduce_scatter_single_coalesced", outputs[at], inputs[at], options.reduceOp));
    return submit({OpType::COALESCED, "weft:reduce_scatter_single_coalesced"}, inputs, outputs, std::move(calls),
                  options.timeout, options.asyncOp);
}

WorkPtr Backend::alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                               std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) {
    const char* const name = "all_to_all_single";
    check_tensor(name, "the output", output);
    check_tensor(name, "the input", input);
    check_type(name, output, input);
    const size_t per_element = moved(input.scalar_type()).per_element;
    const auto received = scaled(split_counts(name, "the output", output, output_splits, size_), per_element);
    const auto sent = scaled(split_counts(name, "the input", input, input_splits, size_), per_element);
    const bool even = output_splits.empty() && input_splits.empty();
    auto target = std::make_shared<std::optional<Output>>();
    auto source = std::make_shared<at::Tensor>();
    Call call{
        [target, source, output, input, received, sent, even](weftComm_t comm, weftStream_t stream) {
            target->emplace(output);
            *source = dense(input);
            const weftDataType_t datatype = moved(input.scalar_type()).datatype;
            if (even)
                check(weftAlltoAll(source->const_data_ptr(), (*target)->data(), sent[0], datatype, comm, stream), comm);
            else
                check(
                    weftAlltoAllv(source->const_data_ptr(), sent.data(), displacements(sent).data(), (*target)->data(),
                                  received.data(), displacements(received).data(), datatype, comm, stream),
                    comm);
        },
        [target](weftComm_t) { (*target)->write(); }};
    return submit({OpType::ALLTOALL_BASE, "weft:all_to_all_single"}, {input}, {output}, {std::move(call)},
                  options.timeout, options.asyncOp);
}

WorkPtr Backend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
    check_lists("all_to_all", "the list of outputs", outputs.size(), size_t(size_));
    check_lists("all_to_all", "the list of inputs", inputs.size(), size_t(size_));
    check_tensors("all_to_all", "the list of outputs", outputs);
    check_tensors("all_to_all", "the list of inputs", inputs);
    check_type("all_to_all", outputs[0], inputs[0]);
    auto received = std::make_shared<Row>(outputs);
    auto sent = std::make_shared<Row>(inputs);
    const Elements elements = moved(inputs[0].scalar_type());
    Call call{[received, sent, elements](weftComm_t comm, weftStream_t stream) {
                  sent->gather();
                  const auto to = scaled(sent->counts(), elements.per_element);
                  const auto from = scaled(received->counts(), elements.per_element);
                  check(weftAlltoAllv(sent->data(), to.data(), displacements(to).data(), received->data(), from.data(),
                                      displacements(from).data(), elements.datatype, comm, stream),
                        comm);
              },
              [received](weftComm_t) { received->spread(); }};
    return submit({OpType::ALLTOALL, "weft:all_to_all"}, inputs, outputs, {std::move(call)}, options.timeout,
                  options.asyncOp);
}

WorkPtr Backend::barrier(const c10d::BarrierOptions& options) {
    Call call{[](weftComm_t comm, weftStream_t stream) { check(weftBarrier(comm, stream), comm); }};
    const Title title{OpType::BARRIER, "weft:barrier"};
    const auto device = barrier_device(options);
    if (!device) return submit(title, {}, {}, {std::move(call)}, options.timeout, options.asyncOp);
    check_process();
    refuse_estimate("barrier", *device);
    if (is_capturing(current_stream(*device)))
        throw_usage(
            "barrier: the stream is capturing, and a barrier of torch waits on the host; capture an all_reduce instead "
            "[stream.capture]");
    ++sequence_;
    // A future orders the streams of its tensors.
    const at::Tensor token = at::empty({1}, at::TensorOptions(at::kByte).device(*device));
    return run_on_device(*device, title, {}, {token}, {std::move(call)}, chosen(options.timeout), options.asyncOp,
                         true);
}

}  // namespace weft_torch
