#include "statistics.hpp"

#include <charconv>
#include <string>

#include "backend.hpp"
#include "failure.hpp"
#include "python_caller.hpp"
#include "tensors.hpp"

namespace weft_torch {

namespace {

struct Size {
    size_t count;
    weftDataType_t datatype;
};

Size size_of(const at::Tensor& tensor) {
    const Elements elements = moved(tensor.scalar_type());
    return {size_t(tensor.numel()) * elements.per_element, elements.datatype};
}

// The predicted time of the algorithm that Weft's explanation says it chooses.
double chosen_us(const std::string& text, std::string_view collective) {
    const auto after = [&](const std::string& what, size_t from) {
        const size_t at = text.find(what, from);
        return at == std::string::npos ? at : at + what.size();
    };
    const size_t chosen = after("\nchosen: ", 0);
    if (chosen != std::string::npos) {
        const std::string name = text.substr(chosen, text.find(' ', chosen) - chosen);
        const size_t number = after("\ncandidate " + name + ": ", 0);
        double us = 0;
        if (number != std::string::npos &&
            std::from_chars(text.data() + number, text.data() + text.size(), us).ec == std::errc())
            return us;
    }
    throw_argument(c10::str("Weft predicts no time for this ", collective, ": ", text, " [argument.value]"));
}

double explained_us(const char* collective, Size size, weftComm_t comm) {
    std::string text(16384, '\0');
    size_t needed = 0;
    const auto explain = [&] {
        check(weftCommExplainCollective(comm, collective, size.count, size.datatype, weftSum, 0, text.data(),
                                        text.size(), &needed),
              comm);
    };
    explain();
    if (needed > text.size()) {
        text.resize(needed);
        explain();
    }
    text.resize(needed > 0 ? needed - 1 : 0);
    return chosen_us(text, collective);
}

// By the beginning of the title; the longer one first.
constexpr const char* collectives[] = {"all_reduce", "all_gather", "all_to_all", "broadcast", "reduce_scatter",
                                       "reduce",     "gather",     "scatter",    "barrier"};

}  // namespace

double predicted_us(std::string_view title, const std::vector<at::Tensor>& inputs,
                    const std::vector<at::Tensor>& outputs, int ranks, weftComm_t comm) {
    title.remove_prefix(std::string_view("weft:").size());
    const char* collective = nullptr;
    for (const char* each : collectives) {
        if (!title.starts_with(each)) continue;
        collective = each;
        break;
    }
    const std::string_view name = collective ? collective : "";
    double us = 0;
    if (name == "barrier") {
        us = explained_us(collective, {0, weftUint8}, comm);
    } else if (name == "all_to_all") {
        size_t count = 0;
        for (const at::Tensor& input : inputs) count += size_of(input).count;
        us = explained_us(collective, {count / size_t(ranks), size_of(inputs[0]).datatype}, comm);
    } else if (name == "reduce_scatter" || name == "scatter") {
        for (const at::Tensor& output : outputs) us += explained_us(collective, size_of(output), comm);
    } else if (collective) {
        for (const at::Tensor& input : inputs) us += explained_us(collective, size_of(input), comm);
    } else {
        throw_argument(c10::str(title, ": Weft predicts times of collectives only [argument.value]"));
    }
    return us;
}

// ---- The methods of c10d::Backend ----

void Backend::startTimeEstimate() {
    check_process();
    std::thread::id nobody;
    if (!is_estimating() && !estimating_thread_->compare_exchange_strong(nobody, std::this_thread::get_id()))
        throw_usage("startTimeEstimate: another thread estimates calls of this process group [usage.threads]");
    estimate_ = std::make_shared<Estimate>();
    // After an exception nothing ends it.
    when_caller_is_gone([opened = std::weak_ptr(estimate_), thread = estimating_thread_] {
        const auto estimate = opened.lock();
        if (!estimate) return;
        std::thread::id own = estimate->thread;
        thread->compare_exchange_strong(own, std::thread::id());
    });
}

bool Backend::is_estimating() const { return *estimating_thread_ == std::this_thread::get_id(); }

void Backend::refuse_estimate(const char* call, const c10::Device& device) const {
    if (!is_estimating()) return;
    if (!device.is_cpu())
        throw_argument(c10::str(call, ": Weft predicts no times of tensors on ", device,
                                "; estimate them with tensors of the CPU [memory.kind]"));
    throw_argument(c10::str(call, ": Weft predicts times of collectives only [argument.value]"));
}

float Backend::endTimeEstimate() {
    if (!is_estimating()) throw_usage("endTimeEstimate() without startTimeEstimate() [group.not-open]");
    const auto us = float(estimate_->us);
    estimate_.reset();
    *estimating_thread_ = std::thread::id();
    return us;
}

void Backend::run_in_order(const std::function<void(weftComm_t)>& call) {
    const auto run = [&] { call(communicator_->get()); };
    if (queue_->run_alone(run)) return;
    auto work = make_work({c10d::OpType::UNKNOWN, nullptr}, {}, {}, options_->timeout, queue_);
    queue_->add(work, run);
    work->wait(kNoTimeout);
}

std::unordered_map<std::string, uint64_t> Backend::getMemoryStats() {
    static constexpr std::pair<const char*, weftMemStat_t> kinds[] = {{"flag_block_bytes", weftMemFlagBlock},
                                                                      {"connection_bytes", weftMemConnection},
                                                                      {"heap_bytes", weftMemHeap},
                                                                      {"device_bytes", weftMemDevice},
                                                                      {"total_bytes", weftMemTotal}};
    check_process();
    std::unordered_map<std::string, uint64_t> bytes;
    run_in_order([&](weftComm_t comm) {
        for (const auto& [name, kind] : kinds) check(weftCommMemStats(comm, kind, &bytes[name]), comm);
    });
    return bytes;
}

}  // namespace weft_torch
