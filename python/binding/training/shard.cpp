// shard.cpp: weft.train.Shard: a model that is sharded in units.
#include <nanobind/stl/vector.h>

#include "python/binding/memory_view.hpp"
#include "python/binding/stream.hpp"
#include "python/binding/training/object.hpp"

namespace weft::python {

namespace {

class Shard final : public TrainingObject<weftTrainShard_t> {
  public:
    // units: (name, [(name, array, rows)], ranks after the forward pass). refused: an exception that this rank raises in
    // place of registering, or None.
    Shard(nb::object comm, const nb::list& units, const nb::dict& settings, const nb::object& refused)
        : TrainingObject(std::move(comm), weftTrainShardDestroy, weftTrainShardAbort) {
        std::vector<std::vector<weftTrainTensor_t>> tensors;
        std::vector<weftTrainUnit_t> read;
        weftTrainShardConfig_t config = WEFT_TRAIN_SHARD_CONFIG_INITIALIZER;
        make(
            [&] {
                if (!refused.is_none()) raise(refused);
                for (nb::handle unit : units) tensors.push_back(tensors_of(nb::cast<nb::tuple>(unit)));
                for (size_t u = 0; u < tensors.size(); ++u)
                    read.push_back(unit_of(nb::cast<nb::tuple>(units[u]), tensors[u]));
                config = config_of(settings);
                types_ = {config.parameterType, config.outputType};
                on_device_ = config.onDevice != 0;
                pieces_on_device_ = on_device_ && config.shardsOnHost == 0;
            },
            [&](weftComm_t own, weftTrainShard_t* made) {
                return weftTrainShardCreate(made, own, read.data(), read.size(), &config);
            },
            [](weftComm_t own, weftTrainShard_t* made) {
                return weftTrainShardCreate(made, own, nullptr, 0, nullptr);
            });
        arrays_.clear();  // each rank has its shard now
    }

    // stream: None, or the CUDA stream that uses the unit.
    void gather(int unit, nb::handle stream) {
        const StreamArgument on(stream);
        open_ = true;
        run([&](weftTrainShard_t own) { return weftTrainShardGather(own, unit, on.handle); });
    }
    void release(int unit, bool backward, nb::handle stream) {
        const StreamArgument on(stream);
        check(weftTrainShardRelease(handle(), unit, backward ? weftTrainBackward : weftTrainForward, on.handle));
    }
    void reduce_scatter(int unit, bool accumulate, nb::handle stream) {
        const StreamArgument on(stream);
        open_ = true;
        run([&](weftTrainShard_t own) {
            return weftTrainShardReduceScatter(own, unit, accumulate ? weftTrainAccumulate : weftTrainSynchronize,
                                               on.handle);
        });
    }
    void finish(nb::handle stream) {
        const StreamArgument on(stream);
        run([&](weftTrainShard_t own) { return weftTrainShardFinish(own, on.handle); });
        open_ = false;
    }
    void zero_gradients() { check(weftTrainShardZeroGradients(handle())); }
    void* parameter(int number) {
        void* memory = nullptr;
        check(weftTrainShardGetParameter(handle(), number, &memory));
        return memory;
    }
    void* gradient(int number) {
        void* memory = nullptr;
        run([&](weftTrainShard_t own) { return weftTrainShardGetGradient(own, number, &memory); });
        return memory;
    }
    weftTrainPiece_t piece(int number) {
        weftTrainPiece_t piece = WEFT_TRAIN_PIECE_INITIALIZER;
        check(weftTrainShardGetPiece(handle(), number, &piece));
        return piece;
    }
    // For objects that ask whether its gradients are reduced.
    nb::object link() { return nb::capsule(handle(), "weftTrainShard"); }
    bool reduced() {
        int reduced = 0;
        check(weftTrainShardGetReduced(handle(), &reduced));
        return reduced != 0;
    }
    nb::tuple stats() {
        weftTrainShardStats_t stats = WEFT_TRAIN_SHARD_STATS_INITIALIZER;
        check(weftTrainShardGetStats(handle(), &stats));
        return nb::make_tuple(stats.gatheredElements, stats.reducedElements, stats.shardBytes, stats.wholeBytes,
                              stats.gatheredBytes, stats.gatheredRemoteBytes, stats.reducedBytes,
                              stats.reducedRemoteBytes, stats.hostBytes, stats.mostBytes);
    }
    // The memory lives as long as arrays over it.
    void close() {
        if (views_ == 0) return TrainingObject::close();
        refuse_calls();
        if (!open_ || !in_own_process()) return;
        const Unlocked gil_is_free;
        abort_quietly();  // other ranks may wait for this one
    }
    void add_view() { ++views_; }
    void drop_view() {
        if (--views_ == 0 && refuses_calls()) end(false);
    }

    bool on_device() const { return on_device_; }
    bool pieces_on_device() const { return pieces_on_device_; }
    // Of a registered parameter.
    size_t count_of(int number) const { return facts_[size_t(number)].first; }
    size_t item_bytes_of(int number) const { return bytes_of(facts_[size_t(number)].second); }
    size_t whole_bytes_of(int number) const {
        return count_of(number) * (types_.first == weftNumTypes ? item_bytes_of(number) : bytes_of(types_.first));
    }
    size_t gradient_item_bytes_of(int number) const {
        return types_.second == weftNumTypes ? item_bytes_of(number) : bytes_of(types_.second);
    }

  private:
    std::vector<weftTrainTensor_t> tensors_of(const nb::tuple& unit) {
        std::vector<weftTrainTensor_t> tensors;
        for (nb::handle entry : nb::cast<nb::list>(unit[1])) {
            const auto parts = nb::cast<nb::tuple>(entry);
            weftTrainTensor_t tensor = WEFT_TRAIN_TENSOR_INITIALIZER;
            tensor.name = PyUnicode_AsUTF8(parts[0].ptr());
            if (!tensor.name) throw nb::python_error();
            Array data(without_autograd(parts[1]), tensor.name, Access::read);
            tensor.data = data.data();
            tensor.count = data.count();
            tensor.datatype = data.type();
            tensor.rows = nb::cast<size_t>(parts[2]);
            facts_.emplace_back(tensor.count, tensor.datatype);
            tensors.push_back(tensor);
            arrays_.push_back(std::move(data));
        }
        return tensors;
    }
    static weftTrainUnit_t unit_of(const nb::tuple& parts, const std::vector<weftTrainTensor_t>& tensors) {
        weftTrainUnit_t unit = WEFT_TRAIN_UNIT_INITIALIZER;
        unit.name = PyUnicode_AsUTF8(parts[0].ptr());
        if (!unit.name) throw nb::python_error();
        unit.parameters = tensors.data();
        unit.parameterCount = tensors.size();
        unit.reshardRanks = nb::cast<int>(parts[2]);
        return unit;
    }
    static weftTrainShardConfig_t config_of(const nb::dict& settings) {
        weftTrainShardConfig_t config = WEFT_TRAIN_SHARD_CONFIG_INITIALIZER;
        config.onDevice = nb::cast<bool>(settings["on_device"]) ? 1 : 0;
        config.shardsOnHost = nb::cast<bool>(settings["shards_on_host"]) ? 1 : 0;
        config.keepGradients = nb::cast<bool>(settings["keep_gradients"]) ? 1 : 0;
        config.overwriteGradients = nb::cast<bool>(settings["overwrite_gradients"]) ? 1 : 0;
        config.poolGradients = nb::cast<bool>(settings["pool_gradients"]) ? 1 : 0;
        config.sharding = nb::cast<bool>(settings["rows"]) ? weftTrainShardRows : weftTrainShardFlat;
        config.stage = weftTrainStage_t(nb::cast<int>(settings["stage"]));
        config.shardRanks = nb::cast<int>(settings["shard_ranks"]);
        config.divisor = nb::cast<double>(settings["divisor"]);
        const auto type = [&](const char* name) {
            const nb::object given = settings[name];
            return given.is_none() ? weftNumTypes : type_named(given);
        };
        config.parameterType = type("parameter_type");
        config.reduceType = type("reduce_type");
        config.outputType = type("output_type");
        config.gatherBits = nb::cast<int>(settings["gather_bits"]);
        config.reduceBits = nb::cast<int>(settings["reduce_bits"]);
        config.blockCount = nb::cast<size_t>(settings["block_count"]);
        return config;
    }

    std::vector<std::pair<size_t, weftDataType_t>> facts_;  // elements and type of each parameter
    // Of whole parameters, and of reduced gradients. weftNumTypes: the parameter's own.
    std::pair<weftDataType_t, weftDataType_t> types_{weftNumTypes, weftNumTypes};
    bool on_device_ = false, pieces_on_device_ = false;
    int views_ = 0;      // of its memory, which Python holds
    bool open_ = false;  // an iteration has begun
};

nb::object memory_of(const nb::object& self, bool on_device, void* data, size_t bytes) {
    return on_device ? MemoryView<Shard, true>::make(self, data, bytes) : MemoryView<Shard>::make(self, data, bytes);
}

nb::object whole_of(const nb::object& self, int number, void* (Shard::*find)(int)) {
    Shard& shard = nb::cast<Shard&>(self);
    void* const memory = (shard.*find)(number);
    return memory_of(self, shard.on_device(), memory, shard.whole_bytes_of(number));
}

nb::tuple piece_of(const nb::object& self, int number) {
    Shard& shard = nb::cast<Shard&>(self);
    const weftTrainPiece_t piece = shard.piece(number);
    const auto memory = [&](void* data, size_t item_bytes) {
        return memory_of(self, shard.pieces_on_device(), data, piece.count * item_bytes);
    };
    return nb::make_tuple(memory(piece.values, shard.item_bytes_of(number)),
                          piece.gradient ? memory(piece.gradient, shard.gradient_item_bytes_of(number)) : nb::none(),
                          piece.begin, piece.count);
}

}  // namespace

void bind_training_shard(nb::module_& module) {
    MemoryView<Shard>::bind(module, "ShardMemory");
    MemoryView<Shard, true>::bind(module, "ShardDeviceMemory");
    // The device of an array's memory, or -1 for host memory, and the name of its dtype.
    module.def("array_facts", [](nb::handle x, const std::string& name) {
        const Array array(without_autograd(x), name.c_str(), Access::read);
        return nb::make_tuple(array.device(), name_of(array.type()));
    });
    nb::class_<Shard>(module, "Shard", nb::type_slots(collected<Shard>()), nb::is_weak_referenceable())
        .def(nb::init<nb::object, const nb::list&, const nb::dict&, const nb::object&>(), nb::arg("comm"),
             nb::arg("units"), nb::arg("settings"), nb::arg("refused").none(), InFrame())
        .def("_gather", &Shard::gather, nb::arg("unit"), nb::arg("stream").none(), InFrame())
        .def("_release", &Shard::release, nb::arg("unit"), nb::arg("backward"), nb::arg("stream").none(), InFrame())
        .def("_reduce_scatter", &Shard::reduce_scatter, nb::arg("unit"), nb::arg("accumulate"),
             nb::arg("stream").none(), InFrame())
        .def("_finish", &Shard::finish, nb::arg("stream").none(), InFrame())
        .def("_zero_gradients", &Shard::zero_gradients, InFrame())
        .def(
            "_parameter", [](nb::object self, int number) { return whole_of(self, number, &Shard::parameter); },
            InFrame())
        .def(
            "_gradient", [](nb::object self, int number) { return whole_of(self, number, &Shard::gradient); },
            InFrame())
        .def("_piece", &piece_of, InFrame())
        .def("_link", &Shard::link, InFrame())
        .def("_reduced", &Shard::reduced, InFrame())
        .def("_stats", &Shard::stats, InFrame())
        .def("_abort", &Shard::abort, InFrame())
        .def(
            "_give_up",
            [](Shard& shard) {
                const Unlocked gil_is_free;
                shard.abort_quietly();
            },
            InFrame())
        .def("_close", &Shard::close, InFrame());
}

}  // namespace weft::python
