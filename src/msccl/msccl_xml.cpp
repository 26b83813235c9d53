// msccl_xml.cpp: the elements of a file as values of msccl_xml.hpp. Every number has bounds.
#include "src/msccl/msccl_xml.hpp"

#include <algorithm>
#include <unordered_map>

#include "src/schedule/schedule.hpp"
#include "src/schedule/validate.hpp"

namespace weft::internal::msccl {

using xml::shown;

namespace {

// Chunks that all steps together move, each of which is tracked.
constexpr int64_t moved_chunks_most = int64_t(1) << 24;

// The name of a schedule holds this many bytes and a prefix.
constexpr size_t name_bytes_most = name_letters_most - 6;

struct Type {
    const char* name;
    Opcode opcode;
};
constexpr Type types[] = {{"s", Opcode::send},
                          {"r", Opcode::recv},
                          {"rcs", Opcode::recv_copy_send},
                          {"rrs", Opcode::recv_reduce_send},
                          {"rrc", Opcode::recv_reduce_copy},
                          {"rrcs", Opcode::recv_reduce_copy_send},
                          {"cpy", Opcode::copy},
                          {"re", Opcode::add},
                          {"nop", Opcode::nop}};

class MscclReader : xml::Handler {
  public:
    Result<File> read(std::string_view text) {
        WEFT_TRY(xml::read(text, *this));
        WEFT_TRY(order_gpus());
        for (XmlGpu& gpu : file_.gpus) WEFT_TRY(find_dependencies(gpu));
        return std::move(file_);
    }

  private:
    static constexpr const char* levels[] = {"algo", "gpu", "tb", "step"};

    void end() override { --depth_; }
    void start(xml::Element& element) override {
        if (depth_ == std::size(levels))
            return element.wrong("a <step> holds nothing, found <{}>", shown(element.name()));
        if (element.name() != levels[depth_])
            return element.wrong("expected <{}>, found <{}>", levels[depth_], element.name().substr(0, 40));
        switch (depth_++) {
            case 0: start_file(element); break;
            case 1: start_gpu(element); break;
            case 2: start_block(element); break;
            case 3: start_step(element); break;
        }
    }

    void start_file(xml::Element& attributes) {
        file_.mark = attributes.mark();
        file_.name = attributes.text("name");
        if (file_.name.size() > name_bytes_most)
            attributes.wrong("name has {} bytes; at most {} are read", file_.name.size(), name_bytes_most);
        if (const char* collective = attributes.find("coll")) file_.collective = collective;
        file_.ranks = attributes.number("ngpus", 1, ranks_most);
        file_.chunks = attributes.number("nchunksperloop", 1, chunks_most);
        file_.in_place = attributes.number_or("inplace", 0, 1, 0) != 0;
        file_.root = attributes.number_or("root", -1, file_.ranks - 1, -1);
        file_.min_bytes = attributes.number_or<uint64_t>("minBytes", 0, UINT64_MAX, 0);
        // 0 also means no limit.
        file_.max_bytes = attributes.number_or<uint64_t>("maxBytes", 0, UINT64_MAX, 0);
        if (file_.max_bytes == 0) file_.max_bytes = UINT64_MAX;
        if (file_.min_bytes > file_.max_bytes)
            attributes.wrong("minBytes is {} and maxBytes {}: no message is of that size", file_.min_bytes,
                             file_.max_bytes);
    }
    void start_gpu(xml::Element& attributes) {
        XmlGpu& gpu = file_.gpus.emplace_back();
        gpu.mark = attributes.mark();
        gpu.id = attributes.number("id", 0, file_.ranks - 1);
        gpu.scratch_chunks = attributes.number_or("s_chunks", 0, INT32_MAX, 0);
    }
    void start_block(xml::Element& attributes) {
        ThreadBlock& block = file_.gpus.back().blocks.emplace_back();
        block.mark = attributes.mark();
        block.id = attributes.number("id", 0, INT32_MAX);
        block.send = attributes.number_or("send", -1, file_.ranks - 1, -1);
        block.receive = attributes.number_or("recv", -1, file_.ranks - 1, -1);
        block.channel = attributes.number_or("chan", -1, channels_most - 1, 0);
        const int self = file_.gpus.back().id;
        if (block.send == self || block.receive == self)
            attributes.wrong("tb {} of gpu {} {} its own gpu; within a gpu use cpy and re", block.id, self,
                             block.send == self ? "sends to" : "receives from");
        // A block without connections may have channel -1.
        if (block.channel < 0 && (block.send >= 0 || block.receive >= 0))
            attributes.wrong("tb {} has a peer, but no channel: chan is -1", block.id);
        block.channel = std::max(0, block.channel);
    }
    void start_step(xml::Element& attributes) {
        const XmlGpu& gpu = file_.gpus.back();
        ThreadBlock& block = file_.gpus.back().blocks.back();
        const int place = int(block.steps.size());
        Step& step = block.steps.emplace_back();
        step.mark = attributes.mark();
        const int number = attributes.number("s", 0, INT32_MAX);
        if (number != place)
            attributes.wrong("this is step {} of tb {}, but s is {}: steps are numbered from 0", place, block.id,
                             number);
        const std::string_view type = attributes.text("type");
        const auto row =
            std::find_if(std::begin(types), std::end(types), [&](const Type& it) { return type == it.name; });
        if (row == std::end(types))
            return attributes.wrong("type is {}; there are s, r, rcs, rrs, rrc, rrcs, cpy, re and nop", shown(type));
        step.opcode = row->opcode;
        if (reads_source(step.opcode)) step.source = operand(attributes, "srcbuf", "srcoff");
        if (writes_targets(step.opcode)) step.target = operand(attributes, "dstbuf", "dstoff");
        if (receives(step.opcode) && block.receive < 0)
            attributes.wrong("{} receives, but tb {} of gpu {} has no recv", type, block.id, gpu.id);
        if (sends(step.opcode) && block.send < 0)
            attributes.wrong("{} sends, but tb {} of gpu {} has no send", type, block.id, gpu.id);
        if (moves(step.opcode)) step.count = attributes.number("cnt", 1, chunks_most);
        moved_ += step.count;
        if (moved_ > moved_chunks_most) attributes.wrong("the steps move more than {} chunks", moved_chunks_most);
        step.after_block = attributes.number_or("depid", -1, INT32_MAX, -1);
        step.after_step = attributes.number_or("deps", -1, INT32_MAX, -1);
        if (step.after_block >= 0 && step.after_step < 0)
            attributes.wrong("it depends on tb {}, but deps does not say after which step", step.after_block);
    }
    Operand operand(xml::Element& attributes, const char* buffer_name, const char* offset_name) {
        Operand operand;
        const std::string_view name = attributes.text(buffer_name);
        operand.buffer = name == "i"   ? Buffer::input
                         : name == "o" ? Buffer::output
                         : name == "s" ? Buffer::scratch
                                       : Buffer::none;
        if (operand.buffer == Buffer::none)
            attributes.wrong("{} is {}; there are i, o and s", buffer_name, shown(name));
        operand.offset = attributes.number(offset_name, 0, INT32_MAX);
        return operand;
    }

    // Requires each rank once, and sorts by rank.
    Status order_gpus() {
        std::vector<int> index(size_t(std::min<size_t>(size_t(file_.ranks), file_.gpus.size() + 1)), -1);
        for (size_t i = 0; i < file_.gpus.size(); ++i) {
            const XmlGpu& gpu = file_.gpus[i];
            if (size_t(gpu.id) >= index.size()) continue;  // then another one is missing
            if (index[size_t(gpu.id)] >= 0) return fail_at(gpu.mark, "gpu {} appears twice", gpu.id);
            index[size_t(gpu.id)] = int(i);
        }
        for (size_t id = 0; id < index.size(); ++id)
            if (index[id] < 0)
                return fail_at(file_.mark, "ngpus is {}, but there is no <gpu id=\"{}\">", file_.ranks, id);
        std::sort(file_.gpus.begin(), file_.gpus.end(), [](const XmlGpu& a, const XmlGpu& b) { return a.id < b.id; });
        return ok();
    }

    // Replaces ids of blocks by their indices, and drops dependencies on earlier steps of the same block.
    static Status find_dependencies(XmlGpu& gpu) {
        std::unordered_map<int, int> index;
        for (size_t i = 0; i < gpu.blocks.size(); ++i)
            if (!index.try_emplace(gpu.blocks[i].id, int(i)).second)
                return fail_at(gpu.blocks[i].mark, "tb {} of gpu {} appears twice", gpu.blocks[i].id, gpu.id);
        for (size_t block = 0; block < gpu.blocks.size(); ++block) {
            auto& steps = gpu.blocks[block].steps;
            for (size_t s = 0; s < steps.size(); ++s) {
                Step& step = steps[s];
                if (step.after_block < 0) continue;
                const auto found = index.find(step.after_block);
                if (found == index.end())
                    return fail_at(step.mark, "it depends on tb {}, which gpu {} does not have", step.after_block,
                                   gpu.id);
                const size_t length = gpu.blocks[size_t(found->second)].steps.size();
                if (size_t(step.after_step) >= length)
                    return fail_at(step.mark, "it depends on step {} of tb {}, which has {} steps", step.after_step,
                                   step.after_block, length);
                step.after_block = found->second;
                if (step.after_block != int(block)) continue;
                if (size_t(step.after_step) >= s)
                    return fail_at(step.mark, "cyclic dependency: step {} of tb {} depends on step {} of the same tb",
                                   s, gpu.blocks[block].id, step.after_step);
                step.after_block = step.after_step = -1;
            }
        }
        return ok();
    }

    File file_;
    size_t depth_ = 0;
    int64_t moved_ = 0;
};

}  // namespace

Result<File> parse(std::string_view xml) { return MscclReader().read(xml); }

}  // namespace weft::internal::msccl
