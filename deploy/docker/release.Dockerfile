# The image of a release, from the statically linked binaries of both architectures. The workflow "Release" builds it;
# to build an image from the sources, use Dockerfile.
FROM gcr.io/distroless/static-debian12
ARG TARGETARCH
COPY ${TARGETARCH}/tidegate /usr/local/bin/tidegate
# A container is reached by its own address, not by loopback.
ENV TIDEGATE_LISTEN=0.0.0.0:8081
EXPOSE 8081
USER 65534:65534
ENTRYPOINT ["/usr/local/bin/tidegate"]
CMD ["serve"]
