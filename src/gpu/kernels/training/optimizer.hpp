// optimizer.hpp: the kernel of a training step on many parts at once. The host's counterpart is train/optimizer.
// Chunks of all parts go to the blocks in turn, so that sums do not depend on timing.
#pragma once
#include "src/base/arithmetic.hpp"
#include "src/gpu/kernels/device.hpp"
#include "src/gpu/kernels/training/optimizer_arguments.hpp"

#if !defined(__CUDACC__)
#include <cmath>
#endif

namespace weft::internal::cuda {

// Memory of one block.
struct OptimizerBlock {
    PartSums sums[optimizer_threads];  // by thread
};

class OptimizerKernel {
  public:
    WEFT_DEVICE OptimizerKernel(const Team& team, const OptimizerArguments& arguments, OptimizerBlock& block)
        : team_(team), a_(arguments), shared_(block) {}

    WEFT_DEVICE void run() const {
        uint64_t before = 0;  // chunks of earlier parts
        const uint64_t blocks = uint64_t(team_.blocks);
        for (int p = 0; p < a_.parts; ++p) {
            const PartArguments& part = a_.part[p];
            const uint64_t chunks = (part.count + optimizer_chunk - 1) / optimizer_chunk;
            PartSums sums{0, 0, 0};
            for (uint64_t c = (uint64_t(team_.block) + blocks - before % blocks) % blocks; c < chunks; c += blocks) {
                const uint64_t begin = c * optimizer_chunk;
                const uint64_t end = part.count - begin < optimizer_chunk ? part.count : begin + optimizer_chunk;
                for (uint64_t i = begin + uint64_t(team_.thread); i < end; i += uint64_t(team_.threads))
                    one(part, i, sums);
            }
            before += chunks;
            if (a_.sums) write_sums(p, sums);
        }
    }

  private:
    // The formulas that call it are the host's, too.
    struct Root {
#if defined(__CUDACC__)
        __host__ __device__
#endif
            float
            operator()(float value) const {
            return sqrtf(value);
        }
    };

    static WEFT_DEVICE float get(const void* memory, weftDataType_t type, uint64_t i) {
        if (type == weftFloat32) return static_cast<const float*>(memory)[i];
        const uint16_t bits = static_cast<const uint16_t*>(memory)[i];
        return type == weftFloat16 ? Arithmetic<weftFloat16>::widen(bits) : Arithmetic<weftBfloat16>::widen(bits);
    }
    static WEFT_DEVICE void put(void* memory, weftDataType_t type, uint64_t i, float value) {
        if (type == weftFloat32)
            static_cast<float*>(memory)[i] = value;
        else
            static_cast<uint16_t*>(memory)[i] =
                type == weftFloat16 ? Arithmetic<weftFloat16>::round(value) : Arithmetic<weftBfloat16>::round(value);
    }
    static WEFT_DEVICE void put_value(const PartArguments& part, uint64_t i, float value) {
        part.values[i] = value;
        if (part.copy) put(part.copy, part.copy_type, i, value);
    }

    WEFT_DEVICE void one(const PartArguments& part, uint64_t i, PartSums& sums) const {
        switch (a_.work) {
            case PartWork::sgd: return sgd_step(part, i);
            case PartWork::adam: return adam_step(part, i);
            case PartWork::lamb_norms: return lamb_norms(part, i, sums);
            case PartWork::lamb: return lamb_step(part, i);
            case PartWork::layer_norms: return layer_norms(part, i, sums);
            case PartWork::measure: return measure(get(part.gradient, part.gradient_type, i), sums);
            case PartWork::scale: {
                const float gradient = get(part.gradient, part.gradient_type, i);
                return put(part.gradient, part.gradient_type, i, gradient * part.factor);
            }
            case PartWork::frozen_norms: return frozen_norms(part, i, sums);
            case PartWork::frozen: {
                float value = part.values[i];
                descend_frozen(part.frozen, part.factor, value, part.first[i], part.second[i], Root());
                return put_value(part, i, value);
            }
        }
    }
    static WEFT_DEVICE void sgd_step(const PartArguments& part, uint64_t i) {
        float value = part.values[i];
        const float gradient = get(part.gradient, part.gradient_type, i);
        if (part.first)
            descend<float>(part.sgd, value, part.first[i], gradient);
        else
            descend<float>(part.sgd, value, gradient);
        put_value(part, i, value);
    }
    static WEFT_DEVICE void adam_step(const PartArguments& part, uint64_t i) {
        float value = part.values[i];
        const float gradient = get(part.gradient, part.gradient_type, i);
        adam<float>(part.adam, value, part.first[i], part.second[i], gradient, Root());
        put_value(part, i, value);
    }
    static WEFT_DEVICE void lamb_norms(const PartArguments& part, uint64_t i, PartSums& sums) {
        const float value = part.values[i];
        const float gradient = get(part.gradient, part.gradient_type, i);
        float first = part.first[i], second = part.second[i];
        add_squares(value, lamb_direction<float>(part.adam, value, first, second, gradient, Root()), sums);
    }
    static WEFT_DEVICE void lamb_step(const PartArguments& part, uint64_t i) {
        const float value = part.values[i];
        const float gradient = get(part.gradient, part.gradient_type, i);
        const float direction =
            lamb_direction<float>(part.adam, value, part.first[i], part.second[i], gradient, Root());
        put_value(part, i, value - direction * part.factor);
    }
    static WEFT_DEVICE void frozen_norms(const PartArguments& part, uint64_t i, PartSums& sums) {
        const float momentum = get(part.gradient, part.gradient_type, i);
        const FrozenFacts facts =
            frozen_facts(part.frozen, part.values[i], part.first[i], part.second[i], part.fresh[i], momentum, Root());
        add_squares(facts.adam, facts.update, sums);
        const auto ratio = double(facts.ratio);
        sums.largest = sums.largest < ratio ? ratio : sums.largest;
    }
    static WEFT_DEVICE void layer_norms(const PartArguments& part, uint64_t i, PartSums& sums) {
        add_squares(part.values[i], get(part.gradient, part.gradient_type, i), sums);
    }
    static WEFT_DEVICE void add_squares(float left, float right, PartSums& sums) {
        sums.first += double(left) * double(left);
        sums.second += double(right) * double(right);
    }
    WEFT_DEVICE void measure(float gradient, PartSums& sums) const {
        const double size = fabs(double(gradient));
        if (!(size <= 3.4028234663852886e38)) sums.second += 1;  // infinite or NaN
        if (largest())
            sums.first = larger(sums.first, size);
        else
            sums.first += a_.power == 2 ? size * size : a_.power == 1 ? size : pow(size, a_.power);
    }
    WEFT_DEVICE bool largest() const { return a_.work == PartWork::measure && a_.power > 1e300; }
    // NaN if there is any.
    static WEFT_DEVICE double larger(double left, double right) { return left >= right || left != left ? left : right; }

    // Of all threads of the block. The pairs do not depend on timing.
    WEFT_DEVICE void write_sums(int part, const PartSums& own) const {
        shared_.sums[team_.thread] = own;
        team_.barrier();
        for (int left = team_.threads; left > 1;) {
            const int half = (left + 1) / 2;
            if (team_.thread < left - half) {
                PartSums& to = shared_.sums[team_.thread];
                const PartSums& from = shared_.sums[team_.thread + half];
                to.first = largest() ? larger(to.first, from.first) : to.first + from.first;
                to.second += from.second;
                to.largest = to.largest < from.largest ? from.largest : to.largest;
            }
            left = half;
            team_.barrier();
        }
        if (team_.thread == 0) a_.sums[part * team_.blocks + team_.block] = shared_.sums[0];
        team_.barrier();  // before the next part's sums
    }

    const Team& team_;
    const OptimizerArguments& a_;
    OptimizerBlock& shared_;
};

WEFT_DEVICE void optimizer(const Team& team, const OptimizerArguments& arguments, OptimizerBlock& block) {
    OptimizerKernel(team, arguments, block).run();
}

}  // namespace weft::internal::cuda
