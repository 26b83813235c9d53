// multiply.hpp: the matrix multiply of the example: blocked for caches, in loops that compilers vectorise.
#pragma once

#include <algorithm>
#include <vector>

namespace train {

// How a matrix lies in memory: element (i, j) is data[i * row + j * column].
template <class Real>
struct View {
    Real* data;
    int row;
    int column = 1;
};

namespace multiply_parts {

// c += f b for four rows of each: each loaded element serves four sums. Restricted pointers let the loop be vectorised.
template <class Real>
[[gnu::always_inline]] inline void add_products(int n, const Real (&f)[4][4], const Real* __restrict b0,
                                                const Real* __restrict b1, const Real* __restrict b2,
                                                const Real* __restrict b3, Real* __restrict c0, Real* __restrict c1,
                                                Real* __restrict c2, Real* __restrict c3) {
    for (int j = 0; j < n; ++j) {
        c0[j] += f[0][0] * b0[j] + f[0][1] * b1[j] + f[0][2] * b2[j] + f[0][3] * b3[j];
        c1[j] += f[1][0] * b0[j] + f[1][1] * b1[j] + f[1][2] * b2[j] + f[1][3] * b3[j];
        c2[j] += f[2][0] * b0[j] + f[2][1] * b1[j] + f[2][2] * b2[j] + f[2][3] * b3[j];
        c3[j] += f[3][0] * b0[j] + f[3][1] * b1[j] + f[3][2] * b2[j] + f[3][3] * b3[j];
    }
}

template <class Real>
[[gnu::always_inline]] inline void square(int n, View<const Real> a, View<const Real> b, View<Real> c) {
    Real f[4][4];
    for (int i = 0; i < 4; ++i)
        for (int k = 0; k < 4; ++k) f[i][k] = a.data[i * a.row + k * a.column];
    add_products(n, f, b.data, b.data + b.row, b.data + 2 * b.row, b.data + 3 * b.row, c.data, c.data + c.row,
                 c.data + 2 * c.row, c.data + 3 * c.row);
}

template <class Real>
[[gnu::always_inline]] inline void one_row(int n, View<const Real> a, View<const Real> b, View<Real> c) {
    const Real f = *a.data;
    const Real* __restrict from = b.data;
    Real* __restrict to = c.data;
    for (int j = 0; j < n; ++j) to[j] += f * from[j];
}

template <class Real>
[[gnu::always_inline]] inline View<Real> at(View<Real> matrix, int i, int j) {
    return {matrix.data + i * matrix.row + j * matrix.column, matrix.row, matrix.column};
}

// A block of b has 64 rows of 128 columns: 32 KiB of float32 stay in the nearest caches for all rows of a.
template <class Real>
[[gnu::always_inline]] inline void blocks(int m, int n, int depth, View<const Real> a, View<const Real> b,
                                          View<Real> c) {
    for (int j = 0; j < n; j += 128) {
        const int columns = std::min(128, n - j);
        for (int k = 0; k < depth; k += 64) {
            const int deep = std::min(64, depth - k);
            const View<const Real> block = at(b, k, j);
            for (int i = 0; i < m; i += 4) {
                for (int d = 0; d < deep; d += 4) {
                    if (i + 4 <= m && d + 4 <= deep) {
                        square(columns, at(a, i, k + d), at(block, d, 0), at(c, i, j));
                        continue;
                    }
                    for (int row = i; row < std::min(i + 4, m); ++row)
                        for (int one = d; one < std::min(d + 4, deep); ++one)
                            one_row(columns, at(a, row, k + one), at(block, one, 0), at(c, row, j));
                }
            }
        }
    }
}

#if defined(__x86_64__)
template <class Real>
[[gnu::target("avx2,fma")]] void blocks_avx2(int m, int n, int depth, View<const Real> a, View<const Real> b,
                                             View<Real> c) {
    blocks(m, n, depth, a, b, c);
}
#endif

}  // namespace multiply_parts

// c += a b, with a of m rows and `depth` columns, b of n columns. The columns of b and c lie one beside the other.
template <class Real>
void multiply(int m, int n, int depth, View<const Real> a, View<const Real> b, View<Real> c) {
#if defined(__x86_64__)
    static const bool wide = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (wide) return multiply_parts::blocks_avx2(m, n, depth, a, b, c);
#endif
    multiply_parts::blocks(m, n, depth, a, b, c);
}

// The transpose of a matrix of m rows and n columns, for multiply()'s b. It is valid until the next call.
template <class Real>
View<const Real> transposed(int m, int n, View<const Real> a, std::vector<Real>& scratch) {
    scratch.resize(static_cast<std::size_t>(m) * n);
    for (int i = 0; i < m; ++i)
        for (int j = 0; j < n; ++j) scratch[static_cast<std::size_t>(j) * m + i] = a.data[i * a.row + j * a.column];
    return {scratch.data(), m};
}

}  // namespace train
