// train.hpp: train.h for C++17: an owner instead of a destroy call, exceptions instead of codes. Header only.
//
//     weft::train::Ddp ddp(comm, {weft::train::tensor("weight", weight, 100)});
//     ddp.begin();
//     compute(ddp.gradient<float>(0));
//     ddp.ready(0);
//     ddp.finish();  // the gradient is the average over all ranks
//
// train.h says for each call what it does and which errors it returns.
#ifndef WEFT_TRAIN_HPP
#define WEFT_TRAIN_HPP

#include <weft/train.h>
#include <weft/weft.hpp>

#include <cstddef>
#include <cstdint>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace weft {
namespace train {

// A parameter or a buffer. The name must live until the Ddp or Shard is made, the memory as long as the Ddp. `gradient`
// may be the caller's own memory.
template <class T>
weftTrainTensor_t tensor(const char* name, T* data, std::size_t count, T* gradient = nullptr) {
    weftTrainTensor_t made = WEFT_TRAIN_TENSOR_INITIALIZER;
    made.name = name;
    made.data = data;
    made.gradient = gradient;
    made.count = count;
    made.datatype = datatype_of<T>();
    return made;
}

// The settings of a Ddp, to begin with.
inline weftTrainDdpConfig_t ddp_config() {
    const weftTrainDdpConfig_t config = WEFT_TRAIN_DDP_CONFIG_INITIALIZER;
    return config;
}

// A registered model, and its gradients. Move-only. Thread-bound, except abort(), which is thread-safe.
class Ddp {
  public:
    // All ranks of the communicator call it. Then all have the values of rank 0.
    Ddp(const Communicator& comm, const std::vector<weftTrainTensor_t>& parameters,
        const std::vector<weftTrainTensor_t>& buffers = {}, const weftTrainDdpConfig_t& config = ddp_config()) {
        check(weftTrainDdpCreate(&handle_, comm.get(), parameters.data(), parameters.size(), buffers.data(),
                                 buffers.size(), &config));
    }
    Ddp(Ddp&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    Ddp& operator=(Ddp&& other) noexcept {
        std::swap(handle_, other.handle_);
        return *this;
    }
    // An open iteration that synchronises ends with an error on the other ranks.
    ~Ddp() { (void)weftTrainDdpDestroy(handle_); }

    weftTrainDdp_t get() const noexcept { return handle_; }
    void abort() { check(weftTrainDdpAbort(handle_)); }

    // The error that has ended the object, or weftSuccess.
    weftResult_t async_error() const {
        weftResult_t result = weftSuccess;
        check(weftTrainDdpGetAsyncError(handle_, &result));
        return result;
    }

    void begin(weftStream_t stream = nullptr) { check(weftTrainDdpBegin(handle_, weftTrainSynchronize, stream)); }
    // The iteration sends nothing: the caller adds its gradients up.
    void begin_accumulation(weftStream_t stream = nullptr) {
        check(weftTrainDdpBegin(handle_, weftTrainAccumulate, stream));
    }
    // Ask again after each begin().
    template <class T>
    T* gradient(int parameter) const {
        void* memory = nullptr;
        check(weftTrainDdpGetGradient(handle_, parameter, &memory));
        return static_cast<T*>(memory);
    }
    void ready(int parameter, weftStream_t stream = nullptr) {
        check(weftTrainDdpGradientReady(handle_, parameter, stream));
    }
    void ready(const std::vector<int>& parameters, weftStream_t stream = nullptr) {
        check(weftTrainDdpGradientsReady(handle_, parameters.data(), parameters.size(), stream));
    }
    void finish(weftStream_t stream = nullptr) { check(weftTrainDdpFinish(handle_, stream)); }
    // Takes part in the iterations of ranks that have more inputs.
    void join(weftStream_t stream = nullptr) { check(weftTrainDdpJoin(handle_, stream)); }

    // Whether some rank had a gradient of the parameter in the newest iteration that synchronised.
    bool used(int parameter) const {
        int used = 0;
        check(weftTrainDdpGetUsed(handle_, parameter, &used));
        return used != 0;
    }
    // Whether the gradients are averages now.
    bool reduced() const {
        int reduced = 0;
        check(weftTrainDdpGetReduced(handle_, &reduced));
        return reduced != 0;
    }
    // Before begin(), or in an accumulation.
    void zero_gradients(weftStream_t stream = nullptr) { check(weftTrainDdpZeroGradients(handle_, stream)); }
    int parameter_count() const {
        int count = 0;
        check(weftTrainDdpGetCounts(handle_, &count, nullptr));
        return count;
    }
    int bucket_count() const {
        int count = 0;
        check(weftTrainDdpGetCounts(handle_, nullptr, &count));
        return count;
    }
    int bucket(int parameter) const {
        int bucket = 0;
        check(weftTrainDdpGetBucket(handle_, parameter, &bucket));
        return bucket;
    }

  private:
    weftTrainDdp_t handle_ = nullptr;
};

// The settings of a compressing hook, to begin with.
inline weftTrainCompressorConfig_t compressor_config(weftTrainCompression_t method) {
    weftTrainCompressorConfig_t config = WEFT_TRAIN_COMPRESSOR_CONFIG_INITIALIZER;
    config.method = method;
    return config;
}

// A hook that sends less than the gradients, and its state. It outlives its Ddp. Move-only. Thread-bound.
class Compressor {
  public:
    explicit Compressor(const weftTrainCompressorConfig_t& config) {
        check(weftTrainCompressorCreate(&handle_, &config));
    }
    Compressor(Compressor&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    Compressor& operator=(Compressor&& other) noexcept {
        std::swap(handle_, other.handle_);
        return *this;
    }
    ~Compressor() { (void)weftTrainCompressorDestroy(handle_); }

    weftTrainCompressor_t get() const noexcept { return handle_; }
    // Makes it the hook of a Ddp that is made with `config`.
    void hook_into(weftTrainDdpConfig_t& config) const noexcept {
        config.hook = weftTrainHookCompress;
        config.hookContext = handle_;
    }
    // This rank's state, between iterations.
    std::vector<unsigned char> save() const {
        std::size_t bytes = 0;
        check(weftTrainCompressorSave(handle_, nullptr, &bytes));
        std::vector<unsigned char> state(bytes);
        check(weftTrainCompressorSave(handle_, state.data(), &bytes));
        return state;
    }
    // Whether the newest bucket was sent compressed, not averaged exactly.
    bool compressed() const {
        int compressed = 0;
        check(weftTrainCompressorGetCompressed(handle_, &compressed));
        return compressed != 0;
    }
    void load(const std::vector<unsigned char>& state) {
        check(weftTrainCompressorLoad(handle_, state.data(), state.size()));
    }

  private:
    weftTrainCompressor_t handle_ = nullptr;
};

// A list of parameters that is gathered and released together. Its name and parameters must live until the Shard is
// made.
inline weftTrainUnit_t unit(const char* name, const std::vector<weftTrainTensor_t>& parameters, int reshard_ranks = 0) {
    weftTrainUnit_t made = WEFT_TRAIN_UNIT_INITIALIZER;
    made.name = name;
    made.parameters = parameters.data();
    made.parameterCount = parameters.size();
    made.reshardRanks = reshard_ranks;
    return made;
}

// The settings of a Shard, to begin with.
inline weftTrainShardConfig_t shard_config() {
    const weftTrainShardConfig_t config = WEFT_TRAIN_SHARD_CONFIG_INITIALIZER;
    return config;
}

// A model whose parameters are sharded in units. Move-only. Thread-bound, except abort(), which is thread-safe.
class Shard {
  public:
    // All ranks of the communicator call it. The values of rank 0 count.
    Shard(const Communicator& comm, const std::vector<weftTrainUnit_t>& units,
          const weftTrainShardConfig_t& config = shard_config()) {
        check(weftTrainShardCreate(&handle_, comm.get(), units.data(), units.size(), &config));
    }
    Shard(Shard&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    Shard& operator=(Shard&& other) noexcept {
        std::swap(handle_, other.handle_);
        return *this;
    }
    // An open iteration ends with an error on the other ranks.
    ~Shard() { (void)weftTrainShardDestroy(handle_); }

    weftTrainShard_t get() const noexcept { return handle_; }
    void abort() { check(weftTrainShardAbort(handle_)); }

    void gather(int unit, weftStream_t stream = nullptr) { check(weftTrainShardGather(handle_, unit, stream)); }
    void release(int unit, weftTrainPass_t pass, weftStream_t stream = nullptr) {
        check(weftTrainShardRelease(handle_, unit, pass, stream));
    }
    void reduce_scatter(int unit, weftTrainMode_t mode = weftTrainSynchronize, weftStream_t stream = nullptr) {
        check(weftTrainShardReduceScatter(handle_, unit, mode, stream));
    }
    void finish(weftStream_t stream = nullptr) { check(weftTrainShardFinish(handle_, stream)); }
    void zero_gradients() { check(weftTrainShardZeroGradients(handle_)); }

    // Whole, while the parameter's unit is gathered.
    template <class T>
    T* parameter(int number) const {
        void* memory = nullptr;
        check(weftTrainShardGetParameter(handle_, number, &memory));
        return static_cast<T*>(memory);
    }
    template <class T>
    T* gradient(int number) {
        void* memory = nullptr;
        check(weftTrainShardGetGradient(handle_, number, &memory));
        return static_cast<T*>(memory);
    }
    // Whether the iteration is finished, and all gradients are reduced over all ranks.
    bool reduced() const {
        int reduced = 0;
        check(weftTrainShardGetReduced(handle_, &reduced));
        return reduced != 0;
    }
    // This rank's part, between finish() and the next gather().
    weftTrainPiece_t piece(int parameter) const {
        weftTrainPiece_t piece = WEFT_TRAIN_PIECE_INITIALIZER;
        check(weftTrainShardGetPiece(handle_, parameter, &piece));
        return piece;
    }
    // The same part for a checkpoint or a copy in memory.
    weftTrainBox_t box(int parameter) const {
        weftTrainBox_t box = WEFT_TRAIN_BOX_INITIALIZER;
        check(weftTrainShardGetBox(handle_, parameter, &box));
        return box;
    }
    weftTrainShardStats_t stats() const {
        weftTrainShardStats_t stats = WEFT_TRAIN_SHARD_STATS_INITIALIZER;
        check(weftTrainShardGetStats(handle_, &stats));
        return stats;
    }

  private:
    weftTrainShard_t handle_ = nullptr;
};

// The settings of a Local, to begin with: set period.
inline weftTrainLocalConfig_t local_config() {
    const weftTrainLocalConfig_t config = WEFT_TRAIN_LOCAL_CONFIG_INITIALIZER;
    return config;
}

// Parameters that each rank trains alone, with rare communication. Move-only. Thread-bound, except abort(),
// which is thread-safe.
class Local {
  public:
    // All ranks of the communicator call it. Then all have the values of rank 0.
    Local(const Communicator& comm, const std::vector<weftTrainTensor_t>& parameters,
          const weftTrainLocalConfig_t& config) {
        check(weftTrainLocalCreate(&handle_, comm.get(), parameters.data(), parameters.size(), &config));
    }
    Local(Local&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    Local& operator=(Local&& other) noexcept {
        std::swap(handle_, other.handle_);
        return *this;
    }
    // Waits for a reduction in progress, which the other ranks begin, too.
    ~Local() { (void)weftTrainLocalDestroy(handle_); }

    weftTrainLocal_t get() const noexcept { return handle_; }
    void abort() { check(weftTrainLocalAbort(handle_)); }

    // After each step of the optimizer. Whether parameters have new values from other ranks. On a device `stream` is the
    // CUDA stream that has changed the parameters and uses them next.
    bool step(weftStream_t stream = nullptr) {
        int changed = 0;
        check(weftTrainLocalStep(handle_, &changed, stream));
        return changed != 0;
    }
    // Of the gradients in the next step.
    weftTrainMode_t mode() const {
        weftTrainMode_t mode = weftTrainAccumulate;
        check(weftTrainLocalGetMode(handle_, &mode));
        return mode;
    }
    std::uint64_t steps() const {
        std::uint64_t steps = 0;
        check(weftTrainLocalGetSteps(handle_, &steps));
        return steps;
    }
    // Then write the saved state to the memory of state().
    void restore(std::uint64_t steps) { check(weftTrainLocalRestore(handle_, steps)); }
    weftTrainLocalState_t state(int parameter) {
        weftTrainLocalState_t state = WEFT_TRAIN_LOCAL_STATE_INITIALIZER;
        check(weftTrainLocalGetState(handle_, parameter, &state));
        return state;
    }

  private:
    weftTrainLocal_t handle_ = nullptr;
};

// This rank's box of a tensor in a checkpoint, in memory of T. Without offsets and extents it is the whole tensor. The
// name must live until the call that gets the box returns.
template <class T>
class Box {
  public:
    Box(const char* name, T* data, std::vector<std::size_t> shape)
        : name_(name), data_(data), shape_(std::move(shape)), offsets_(shape_.size()), extents_(shape_) {}
    Box(const char* name, T* data, std::vector<std::size_t> shape, std::vector<std::size_t> offsets,
        std::vector<std::size_t> extents)
        : name_(name),
          data_(data),
          shape_(std::move(shape)),
          offsets_(std::move(offsets)),
          extents_(std::move(extents)) {
        if (offsets_.size() != shape_.size() || extents_.size() != shape_.size())
            throw std::invalid_argument("weft::train::Box: shape, offsets and extents have different lengths");
    }
    // Valid as long as this object.
    weftTrainBox_t get() const {
        weftTrainBox_t made = WEFT_TRAIN_BOX_INITIALIZER;
        made.name = name_;
        made.data = data_;
        made.datatype = datatype_of<T>();
        made.dims = static_cast<int>(shape_.size());
        made.shape = shape_.data();
        made.offsets = offsets_.data();
        made.extents = extents_.data();
        return made;
    }

  private:
    const char* name_;
    T* data_;
    std::vector<std::size_t> shape_, offsets_, extents_;
};

// Small data beside the tensors of a checkpoint.
inline weftTrainItem_t item(const char* name, const void* data, std::size_t bytes, bool per_rank = false) {
    weftTrainItem_t made = WEFT_TRAIN_ITEM_INITIALIZER;
    made.name = name;
    made.data = data;
    made.bytes = bytes;
    made.perRank = per_rank ? 1 : 0;
    return made;
}

// Saves and loads checkpoints. Move-only. Thread-bound, except abort(), which is thread-safe.
class Checkpoint {
  public:
    // All ranks of the communicator call it.
    explicit Checkpoint(const Communicator& comm) { check(weftTrainCheckpointCreate(&handle_, comm.get())); }
    Checkpoint(Checkpoint&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    Checkpoint& operator=(Checkpoint&& other) noexcept {
        std::swap(handle_, other.handle_);
        return *this;
    }
    // Waits for a save in the background, whose error is lost: call wait() before.
    ~Checkpoint() { (void)weftTrainCheckpointDestroy(handle_); }

    weftTrainCheckpoint_t get() const noexcept { return handle_; }
    void abort() { check(weftTrainCheckpointAbort(handle_)); }

    // All ranks call these four.
    void save(const std::string& folder, const std::vector<weftTrainBox_t>& boxes,
              const std::vector<weftTrainItem_t>& items = {}) {
        check(weftTrainCheckpointSave(handle_, folder.c_str(), boxes.data(), boxes.size(), items.data(), items.size(),
                                      weftTrainSaveBlocking));
    }
    // Returns once the data is copied: wait() has the result.
    void save_in_background(const std::string& folder, const std::vector<weftTrainBox_t>& boxes,
                            const std::vector<weftTrainItem_t>& items = {}) {
        check(weftTrainCheckpointSave(handle_, folder.c_str(), boxes.data(), boxes.size(), items.data(), items.size(),
                                      weftTrainSaveBackground));
    }
    void load(const std::string& folder, const std::vector<weftTrainBox_t>& boxes) {
        check(weftTrainCheckpointLoad(handle_, folder.c_str(), boxes.data(), boxes.size()));
    }
    void export_file(const std::string& folder, const std::string& file, const std::string& prefix = "") {
        check(weftTrainCheckpointExport(handle_, folder.c_str(), prefix.c_str(), file.c_str()));
    }

    bool test() const {
        int done = 0;
        check(weftTrainCheckpointTest(handle_, &done));
        return done != 0;
    }
    void wait() { check(weftTrainCheckpointWait(handle_)); }

    // Of the checkpoint that was loaded last.
    int ranks() const {
        int ranks = 0;
        check(weftTrainCheckpointGetRanks(handle_, &ranks));
        return ranks;
    }
    // rank -1: the item of all ranks.
    std::vector<unsigned char> item(const std::string& name, int rank = -1) const {
        std::size_t bytes = 0;
        check(weftTrainCheckpointGetItem(handle_, name.c_str(), rank, nullptr, 0, &bytes));
        std::vector<unsigned char> data(bytes + 1);  // data() of an empty vector may be NULL
        check(weftTrainCheckpointGetItem(handle_, name.c_str(), rank, data.data(), bytes, &bytes));
        data.resize(bytes);
        return data;
    }

  private:
    weftTrainCheckpoint_t handle_ = nullptr;
};

// A tensor or an item of a checkpoint. Items: rank is whose it is, -1: of all ranks.
struct StoredTensor {
    std::string name;
    bool is_item = false;
    int rank = -1;
    weftDataType_t datatype = weftUint8;
    std::vector<std::size_t> shape;
    std::size_t bytes = 0;
    std::vector<unsigned char> data;  // of an item
};

// The contents of the complete checkpoint in a folder. Local: it needs no communicator.
inline std::vector<StoredTensor> list_checkpoint(const std::string& folder) {
    struct List {
        std::vector<StoredTensor> all;
        bool failed = false;
    } list;
    const auto add = [](const weftTrainStored_t* stored, void* context) {
        List& to = *static_cast<List*>(context);
        try {
            const auto* const bytes = static_cast<const unsigned char*>(stored->data);
            StoredTensor made;
            made.name = stored->name;
            made.is_item = stored->isItem != 0;
            made.rank = stored->rank;
            made.datatype = stored->datatype;
            made.shape.assign(stored->shape, stored->shape + stored->dims);
            made.bytes = stored->bytes;
            if (bytes) made.data.assign(bytes, bytes + stored->bytes);
            to.all.push_back(std::move(made));
        } catch (const std::bad_alloc&) {
            to.failed = true;
        }
    };
    check(weftTrainCheckpointList(folder.c_str(), add, &list, nullptr));
    if (list.failed) throw std::bad_alloc();
    return std::move(list.all);
}

// Copies of this rank's and other ranks' states in memory. It outlives communicators. Move-only. Thread-bound.
class Replica {
  public:
    // Local: no communication.
    explicit Replica(int jump, int copies = 2) { check(weftTrainReplicaCreate(&handle_, jump, copies)); }
    Replica(Replica&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    Replica& operator=(Replica&& other) noexcept {
        std::swap(handle_, other.handle_);
        return *this;
    }
    ~Replica() { (void)weftTrainReplicaDestroy(handle_); }

    weftTrainReplica_t get() const noexcept { return handle_; }

    // All ranks of the communicator call these two.
    void save(const Communicator& comm, std::uint64_t version, const std::vector<weftTrainBox_t>& boxes,
              const std::vector<weftTrainItem_t>& items = {}) {
        check(
            weftTrainReplicaSave(handle_, comm.get(), version, boxes.data(), boxes.size(), items.data(), items.size()));
    }
    // The version that was loaded.
    std::uint64_t load(const Communicator& comm, const std::vector<weftTrainBox_t>& boxes) {
        std::uint64_t version = 0;
        check(weftTrainReplicaLoad(handle_, comm.get(), boxes.data(), boxes.size(), &version));
        return version;
    }

    // Of the state that was loaded last.
    std::vector<unsigned char> item(const std::string& name, bool per_rank = false) const {
        std::size_t bytes = 0;
        check(weftTrainReplicaGetItem(handle_, name.c_str(), per_rank ? 1 : 0, nullptr, 0, &bytes));
        std::vector<unsigned char> data(bytes + 1);  // data() of an empty vector may be NULL
        check(weftTrainReplicaGetItem(handle_, name.c_str(), per_rank ? 1 : 0, data.data(), bytes, &bytes));
        data.resize(bytes);
        return data;
    }

  private:
    weftTrainReplica_t handle_ = nullptr;
};

// The settings of a Stragglers, to begin with.
inline weftTrainStragglersConfig_t stragglers_config() {
    const weftTrainStragglersConfig_t config = WEFT_TRAIN_STRAGGLERS_CONFIG_INITIALIZER;
    return config;
}

// Names slow ranks in the log. Move-only. Thread-bound, except abort(), which is thread-safe.
class Stragglers {
  public:
    // All ranks of the communicator call it.
    explicit Stragglers(const Communicator& comm, const weftTrainStragglersConfig_t& config = stragglers_config())
        : ranks_(comm.ranks()) {
        check(weftTrainStragglersCreate(&handle_, comm.get(), &config));
    }
    Stragglers(Stragglers&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)), ranks_(other.ranks_) {}
    Stragglers& operator=(Stragglers&& other) noexcept {
        std::swap(handle_, other.handle_);
        std::swap(ranks_, other.ranks_);
        return *this;
    }
    ~Stragglers() { (void)weftTrainStragglersDestroy(handle_); }

    weftTrainStragglers_t get() const noexcept { return handle_; }
    void abort() { check(weftTrainStragglersAbort(handle_)); }

    // All ranks call these two. step: whether there was a report.
    bool step(double seconds) {
        int reported = 0;
        check(weftTrainStragglersStep(handle_, seconds, &reported));
        return reported != 0;
    }
    void report() { check(weftTrainStragglersReport(handle_)); }
    // Of the last report, by rank.
    std::vector<double> scores(weftTrainStragglerReference_t reference = weftTrainFastestRank) const {
        std::vector<double> all(static_cast<std::size_t>(ranks_));
        check(weftTrainStragglersGetScores(handle_, reference, all.data(), ranks_));
        return all;
    }

  private:
    weftTrainStragglers_t handle_ = nullptr;
    int ranks_;
};

// This rank's part of a parameter for an Optimizer, or of a gradient for norms. The memory must live as long as the
// Optimizer, the name during the call. Bit i of `axes`: the tensor is sharded over the communicator axes[i].
template <class Gradient>
weftTrainPart_t part(const char* name, float* values, Gradient* gradient, std::size_t count, unsigned axes = 0) {
    weftTrainPart_t made = WEFT_TRAIN_PART_INITIALIZER;
    made.name = name;
    made.values = values;
    made.gradient = gradient;
    made.gradientType = datatype_of<Gradient>();
    made.count = count;
    made.axes = axes;
    return made;
}
// The axes of a mesh as train.h takes them. The communicators must outlive their use.
inline std::vector<weftComm_t> handles(const std::vector<const Communicator*>& axes) {
    std::vector<weftComm_t> made;
    for (const Communicator* axis : axes) made.push_back(axis->get());
    return made;
}

// The settings of an Optimizer, to begin with.
inline weftTrainOptimizerConfig_t optimizer_config(weftTrainAlgorithm_t algorithm) {
    weftTrainOptimizerConfig_t config = WEFT_TRAIN_OPTIMIZER_CONFIG_INITIALIZER;
    config.algorithm = algorithm;
    return config;
}

// An optimizer with its moments. Move-only. Thread-bound, also to the axes, which must outlive it.
class Optimizer {
  public:
    Optimizer(const std::vector<weftTrainPart_t>& parts, const weftTrainOptimizerConfig_t& config,
              const std::vector<const Communicator*>& axes = {}) {
        check(
            weftTrainOptimizerCreate(&handle_, parts.data(), parts.size(), handles(axes).data(), axes.size(), &config));
    }
    Optimizer(Optimizer&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    Optimizer& operator=(Optimizer&& other) noexcept {
        std::swap(handle_, other.handle_);
        return *this;
    }
    ~Optimizer() { (void)weftTrainOptimizerDestroy(handle_); }

    weftTrainOptimizer_t get() const noexcept { return handle_; }
    void set_gradient(int part, void* gradient) { check(weftTrainOptimizerSetGradient(handle_, part, gradient)); }
    void step(double learning_rate, double gradient_scale = 1, bool skip = false, weftStream_t stream = nullptr) {
        check(weftTrainOptimizerStep(handle_, learning_rate, gradient_scale, skip ? 1 : 0, stream));
    }
    int state_count() const {
        int states = 0;
        check(weftTrainOptimizerGetStateCount(handle_, &states));
        return states;
    }
    // An array of moments: its name, and memory that may be read and written between steps.
    std::pair<const char*, float*> state(int part, int state) const {
        std::pair<const char*, float*> found;
        check(weftTrainOptimizerGetState(handle_, part, state, &found.first, &found.second));
        return found;
    }
    // Only the name, also of an array that lies in a file.
    const char* state_name(int part, int state) const {
        const char* name = nullptr;
        check(weftTrainOptimizerGetState(handle_, part, state, &name, nullptr));
        return name;
    }
    // Copies an array of as many elements as the part has, also one that lies in a file.
    void read_state(int part, int state, float* values) const {
        check(weftTrainOptimizerReadState(handle_, part, state, values));
    }
    void write_state(int part, int state, const float* values) {
        check(weftTrainOptimizerWriteState(handle_, part, state, values));
    }
    std::uint64_t steps(int part) const {
        std::uint64_t steps = 0;
        check(weftTrainOptimizerGetSteps(handle_, part, &steps));
        return steps;
    }
    void set_steps(int part, std::uint64_t steps) { check(weftTrainOptimizerSetSteps(handle_, part, steps)); }
    // 1-bit LAMB: the mean ratio of a part, and the factor of its newest compressed step.
    std::pair<double, double> trust(int part) const {
        std::pair<double, double> trust;
        check(weftTrainOptimizerGetTrust(handle_, part, &trust.first, &trust.second));
        return trust;
    }
    void set_trust(int part, double trust, double factor) {
        check(weftTrainOptimizerSetTrust(handle_, part, trust, factor));
    }

  private:
    weftTrainOptimizer_t handle_ = nullptr;
};

// The p-norm of all gradients of a mesh.
inline double gradient_norm(const std::vector<weftTrainPart_t>& parts,
                            const std::vector<const Communicator*>& axes = {}, double p = 2,
                            weftStream_t stream = nullptr) {
    double norm = 0;
    check(weftTrainGradientNorm(parts.data(), parts.size(), handles(axes).data(), axes.size(), p, &norm, stream));
    return norm;
}
inline void clip_gradients(const std::vector<weftTrainPart_t>& parts, double norm, double max_norm,
                           bool error_if_nonfinite = false, weftStream_t stream = nullptr) {
    check(weftTrainClipGradients(parts.data(), parts.size(), norm, max_norm, error_if_nonfinite ? 1 : 0, stream));
}

// The settings of a Scaler, to begin with.
inline weftTrainScalerConfig_t scaler_config() {
    const weftTrainScalerConfig_t config = WEFT_TRAIN_SCALER_CONFIG_INITIALIZER;
    return config;
}

// A dynamic loss scale. Move-only. Thread-bound, also to the axes, which must outlive it.
class Scaler {
  public:
    explicit Scaler(const std::vector<const Communicator*>& axes,
                    const weftTrainScalerConfig_t& config = scaler_config()) {
        check(weftTrainScalerCreate(&handle_, handles(axes).data(), axes.size(), &config));
    }
    Scaler(Scaler&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    Scaler& operator=(Scaler&& other) noexcept {
        std::swap(handle_, other.handle_);
        return *this;
    }
    ~Scaler() { (void)weftTrainScalerDestroy(handle_); }

    weftTrainScaler_t get() const noexcept { return handle_; }
    double scale() const {
        double scale = 0;
        check(weftTrainScalerGetState(handle_, &scale, nullptr));
        return scale;
    }
    int good_steps() const {
        int steps = 0;
        check(weftTrainScalerGetState(handle_, nullptr, &steps));
        return steps;
    }
    void restore(double scale, int good_steps) { check(weftTrainScalerSetState(handle_, scale, good_steps)); }
    // True if any gradient of any rank is infinite or NaN: skip the step. Divides gradients by the scale.
    bool unscale(const std::vector<weftTrainPart_t>& parts, bool divide = true, weftStream_t stream = nullptr) {
        int found = 0;
        check(weftTrainScalerUnscale(handle_, parts.data(), parts.size(), divide ? 1 : 0, &found, stream));
        return found != 0;
    }
    void update() { check(weftTrainScalerUpdate(handle_)); }

  private:
    weftTrainScaler_t handle_ = nullptr;
};

// The activations of a batch-norm layer on one rank.
inline weftTrainBatchNorm_t batch_norm(std::size_t batch, std::size_t channels, std::size_t inner = 1) {
    weftTrainBatchNorm_t layer = WEFT_TRAIN_BATCH_NORM_INITIALIZER;
    layer.batch = batch;
    layer.channels = channels;
    layer.inner = inner;
    return layer;
}
// Writes mean and invstd of each channel over all ranks, and gives the elements of a channel.
inline std::uint64_t batch_norm_forward(const weftTrainBatchNorm_t& layer, const void* x, float* mean, float* invstd,
                                        const Communicator& comm) {
    std::uint64_t count = 0;
    check(weftTrainBatchNormForward(&layer, x, mean, invstd, &count, comm.get(), nullptr));
    return count;
}
// The same on a device, by work of `stream`: it blocks only for a count in host memory. `count` may be null.
inline void batch_norm_forward(const weftTrainBatchNorm_t& layer, const void* x, float* mean, float* invstd,
                               std::uint64_t* count, const Communicator& comm, weftStream_t stream) {
    check(weftTrainBatchNormForward(&layer, x, mean, invstd, count, comm.get(), stream));
}
// Writes 2 x channels sums of this rank, if wanted, and of all ranks. On a device it is work of `stream`.
inline void batch_norm_backward(const weftTrainBatchNorm_t& layer, const void* x, const void* dy, const float* mean,
                                float* own_sums, float* sums, const Communicator& comm, weftStream_t stream = nullptr) {
    check(weftTrainBatchNormBackward(&layer, x, dy, mean, own_sums, sums, comm.get(), stream));
}

// 0 to samples - 1 in an order that the seed determines, equal on all ranks.
inline std::vector<std::uint64_t> shuffled(std::uint64_t samples, std::uint64_t seed) {
    std::vector<std::uint64_t> order(samples);
    check(weftTrainShuffle(samples, seed, order.data()));
    return order;
}
// The samples that a rank takes in an epoch. `order`: all samples, or empty: in the order of their numbers.
inline std::vector<std::uint64_t> samples_of_rank(std::uint64_t samples, int ranks, int rank, bool drop_last = false,
                                                  const std::vector<std::uint64_t>& order = {}) {
    std::uint64_t count = 0;
    check(weftTrainSamplerCount(samples, ranks, drop_last ? 1 : 0, &count));
    std::vector<std::uint64_t> indices(count);
    check(weftTrainSamplerIndices(samples, ranks, rank, drop_last ? 1 : 0, order.empty() ? nullptr : order.data(),
                                  indices.data()));
    return indices;
}

// The settings of a ParameterServer, to begin with: set learningRate or update.
inline weftTrainServerConfig_t server_config() {
    const weftTrainServerConfig_t config = WEFT_TRAIN_SERVER_CONFIG_INITIALIZER;
    return config;
}

// Parameters that servers keep: workers push gradients and pull parameters. Move-only. Thread-bound, except abort(),
// which is thread-safe.
class ParameterServer {
  public:
    // All ranks of the communicator call it. Then all have the values of rank 0.
    ParameterServer(const Communicator& comm, const std::vector<weftTrainTensor_t>& parameters,
                    const weftTrainServerConfig_t& config) {
        check(weftTrainServerCreate(&handle_, comm.get(), parameters.data(), parameters.size(), &config));
    }
    ParameterServer(ParameterServer&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    ParameterServer& operator=(ParameterServer&& other) noexcept {
        std::swap(handle_, other.handle_);
        return *this;
    }
    // Other ranks get an error if this worker has not finished.
    ~ParameterServer() { (void)weftTrainServerDestroy(handle_); }

    weftTrainServer_t get() const noexcept { return handle_; }
    void abort() { check(weftTrainServerAbort(handle_)); }

    // Of a server: returns when all workers have finished.
    void serve() { check(weftTrainServerServe(handle_)); }
    // Of a worker.
    void push(weftStream_t stream = nullptr) { check(weftTrainServerPush(handle_, stream)); }
    void pull(weftStream_t stream = nullptr) { check(weftTrainServerPull(handle_, stream)); }
    void finish() { check(weftTrainServerFinish(handle_)); }

    // The rank that keeps a parameter.
    int owner(int parameter) const {
        int rank = 0;
        check(weftTrainServerGetOwner(handle_, parameter, &rank));
        return rank;
    }
    weftTrainServerStats_t stats() const {
        weftTrainServerStats_t stats = WEFT_TRAIN_SERVER_STATS_INITIALIZER;
        check(weftTrainServerGetStats(handle_, &stats));
        return stats;
    }

  private:
    weftTrainServer_t handle_ = nullptr;
};

}  // namespace train
}  // namespace weft

#endif
