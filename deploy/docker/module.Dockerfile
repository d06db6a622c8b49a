# The Envoy module alone, for image volumes and for `COPY --from`. The workflow "Release" builds it from the libraries of both architectures.
FROM scratch
ARG TARGETARCH
COPY ${TARGETARCH}/libtidegate.so /libtidegate.so
